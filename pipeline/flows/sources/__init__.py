"""Sources: bring events into a flow. Each file declares its own; a new source is one file.

`handing`, `listening`, `journal`, `lines`, `calls` and `protection` are shared by several of them.
"""
