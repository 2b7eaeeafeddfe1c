"""Polled processes: discovery, assignment to agents, polls and final snapshots.

Read `discovery` (znodes), `host_groups` and `group_leases` (assignment), `followed_processes` with `follower`
(from registration to end), `poller` with `poll_codec` and `endpoint_connection` (one request), `memo` (for the next
poller), then `final_folder` with `final_files`, `final_snapshot` and `final_samples`. May import `sources.dropin`
(its files of a folder), `sources.delivery` and the layers below it.
"""
