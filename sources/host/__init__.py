"""Sources inside the agent: the host, and the status of endpoints.

Read `local_source`, `host_source`, `proc_files`. May import `sources.delivery` and the layers below it.
"""
