"""Variables on their way out of the process other than by a poll: to files and to Prometheus.

Read `openmetrics` (the text formats), `metrics_server` (HTTP for Prometheus), `dropin_file` (files for the agent of the
host). May import `bookkeeper.rpc`, `bookkeeper.variable_registry` and `bookkeeper.runtime`.
"""
