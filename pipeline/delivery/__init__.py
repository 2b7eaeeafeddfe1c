"""Delivery: from accepted to acked.

In reading order: `modes` (what is promised), `ordered_queue` (items that wait or are out), `failover` (past the log
while that works) with `collector_way`, `memory` (files of a log that promises nothing).
"""
