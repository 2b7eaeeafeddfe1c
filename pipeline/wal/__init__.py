"""Write-ahead log of an agent. docs/formats/wal.md.

In reading order: `file_system` (disk operations), `segment_format`, `state_records` and `segments` (bytes), `epoch`
(identity of a log), `recovery` and `repair` (after a crash), `log_core` (the log without threads), `log` (with a
thread); beside them `batch_states` (of a batch), `shed_records`, `quarantine`, `accepted_counts` and `inspection`
(commands of operators on a log).
"""
