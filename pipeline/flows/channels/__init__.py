"""Channels: what a source handed over, in order, bounded, until every sink has it.

`ledger` decides which branch still wants an item, `seen` which identities were had, `base` puts both under one
condition; `file` (with disk failover), `memory`, `sql` and `kafka` declare the channels.
"""
