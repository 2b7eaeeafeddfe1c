"""Polled processes: discovery, assignment to agents, polls and final snapshots.

Read `host_coordinator` with `registered_processes` (znodes), `unit_leases`, `agent_election` and `lease_units`
(assignment to agents), `process_set` with `process_poller` (from registration to end), `poll_client` with `poll_codec`
(one request), `start_time_memo` (for the next poller), then `final_folder` with `final_files` and `final_samples`.
May import `sources.dropin` (its files of a folder),
`sources.delivery` and the layers below it.
"""
