"""Polled processes: discovery, assignment to agents, polls and final snapshots.

Read `discovery` (znodes), `group_assignment` and `group_leases` (assignment), `process_set` with `process_poller`
(from registration to end), `poll_client` with `poll_codec` and `endpoint_connection` (one request), `start_time_memo`
(for the next poller), then `final_folder` with `final_files`, `final_snapshot` and `final_samples`. May import
`sources.dropin` (its files of a folder), `sources.delivery` and the layers below it.
"""
