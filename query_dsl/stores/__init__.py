"""Stores that an evaluation queries, behind one protocol: `protocol.EngineStore`. Imports nothing from `evaluation`.

levels                            levels at one time, and the reach of a store
query_limits                      limits of a query, its cancellation, and its selects
raw_samples                       request and answer for raw samples
engine_store                      EngineStore, its adapter for a plain store, its wrappers
sample_rows, partial_buckets, bucket_accumulator, partial_codec  raw samples into buckets, here and in Spark's tasks
rollup_buckets                    rows of roll-ups into buckets
history                           samples of the raw table by selector and time
table_read                        one reading of the raw table and its roll-ups
history_catalogue, history_store  the history as a store
stitched_buckets, auto_store      memory and history combined
literal_samples                   samples in Python lists, checked
"""
