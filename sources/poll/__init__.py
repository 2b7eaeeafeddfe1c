"""Polled processes: which there are, which agent polls each, and their final snapshots.

Read `discovery` (znodes), `host_groups` and `group_leases` (who polls which), `followed_processes` with `follower`
(from registration to end), `poller` with `poll_codec` and `endpoint_connection` (one question), `memo` (for the next
poller), then `final_folder` with `final_files`, `final_snapshot` and `final_samples`. May import `sources.dropin`
(its view of a folder), `sources.delivery` and what is below it.
"""
