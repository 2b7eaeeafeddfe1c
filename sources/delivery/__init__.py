"""Shared parts of all sources of an agent, on the way from a reading to the log.

Read `source_config`, `poll_context` (everything that a poll needs), `reading_delivery` and `commit_group` (readings of
one moment go to the log together), `placement` (labels of an address), `endpoint_status`, `source_owners`,
`poll_limits`. May import `sources.targets`, `sources.state` and `sources.base`.
"""
