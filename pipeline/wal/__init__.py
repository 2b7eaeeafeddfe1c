"""The write-ahead log of an agent. docs/formats/wal.md.

In reading order: `files` (operations on a disk), `framing`, `records` and `segments` (bytes), `epoch` (identity of a
log), `recovery` and `repair` (after a crash), `core` (all of it without threads), `log` (with a thread); beside them
`states` (of a batch), `shed`, `aside`, `audit` and `tool` (what people ask of a log).
"""
