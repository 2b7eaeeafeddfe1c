"""Memory of a source: its series, their start times and ends, and the batches of a reading.

Read `source_reading` (content of one poll), `schema_binding` and `relabel` (labels), `start_times` (start times and
ends, pure), `series_memory` with `series_rows` and `past_processes`, then `state_store` with `state_files` (on disk).
`retention_rules` give series their class of retention. May import `sources.base`.
"""
