"""From alerts to messages: routes, groups, inhibition and time intervals, with the meaning of Alertmanager.

Modules in reading order: `matchers`, `time_intervals`, `routes` (tree of receivers), `inhibition`, `groups` (what was
told to whom), `dispatcher`, `routing_file` (the configuration). All but the last are pure: the caller brings the time.

May import alerts.state, alerts.receivers.receiver_kind (routing_file only), artimon.runtime and query_dsl.tree.
"""
