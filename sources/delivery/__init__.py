"""Path from a reading to the log, shared by all sources of an agent.

Read `source_config`, `poll_context` (everything that a poll needs), `reading_delivery` and `commit_group` (group
commit of readings), `placement_resolver` (labels of an address), `endpoint_status`, `source_owners`. May
import `sources.targets`, `sources.state` and `sources.base`.
"""
