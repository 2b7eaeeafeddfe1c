"""Delivery of batches, from accepted to acked.

In reading order: `delivery_mode` (the delivery guarantees), `ordered_queue` (items that wait or are taken),
`failover_log` (bypasses the log while a collector answers), `memory_files` (files of a log without durability).
"""
