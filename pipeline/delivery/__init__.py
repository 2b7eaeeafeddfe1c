"""Delivery of batches, from accepted to acked.

In reading order: `modes` (the delivery guarantees), `ordered_queue` (items that wait or are taken), `failover` (past
the log while that works) with `collector_way`, `memory_files` (files of a log without durability).
"""
