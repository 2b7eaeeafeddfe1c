"""Channels: what a source handed over, in order, bounded, until every sink has it.

`ledger` decides which branch still wants an item, `base` puts it under a condition, beside the identities that were
had; `file` (with disk failover), `memory`, `sql` and `kafka` declare the channels.
"""
