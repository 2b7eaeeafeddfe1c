"""Stores that an evaluation queries, behind one protocol: `protocol.EngineStore`. Imports nothing from `evaluation`.

levels                            levels at one time, and the reach of a store
query_limits                      limits of a query, its cancellation, and its selects
raw_samples                       request and answer for raw samples
engine_store                      EngineStore, its adapter for a plain store, its wrappers
sample_rows, partial_buckets, bucket_accumulator, partial_codec  raw samples into buckets, here and in Spark's tasks
history                           samples of the raw table by selector and time
history_catalogue, history_store  the history as a store
stitched_buckets, auto_store      memory and history combined
literal_samples                   samples in Python lists, checked
"""
