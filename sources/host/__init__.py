"""Sources that live in the agent itself: the host, and the status of endpoints.

Read `local_source`, `host_source`, `proc`. May import `sources.delivery` and what is below it.
"""
