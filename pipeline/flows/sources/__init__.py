"""Sources: bring events into a flow. Each file declares its own; a new source is one file.

`event_sender`, `byte_server`, `source_journal`, `line_splitter`, `call_digests` and `protection` are shared by several
of them.
"""
