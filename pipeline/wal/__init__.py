"""Write-ahead log of an agent. docs/formats/wal.md.

In reading order: `files` (disk operations), `framing`, `records` and `segments` (bytes), `epoch` (identity of a
log), `recovery` and `repair` (after a crash), `core` (the log without threads), `log` (with a thread); beside them
`states` (of a batch), `shed`, `aside`, `audit` and `tool` (commands of operators on a log).
"""
