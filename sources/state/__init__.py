"""Memory of a source: its series, their births and ends, and the batches of a reading.

Read `reading` (content of one poll), `schema_binding` and `relabel` (labels), `series_births` (births and ends, pure),
`series_memory` with `series_rows` and `finals`, then `state_store` with `state_files` (on disk). `keep_rules` give
series their class of retention. May import `sources.base`.
"""
