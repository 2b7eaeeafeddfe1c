"""Sources: what brings events into a flow. Each file declares its own; a new source is one file.

`handing`, `listening`, `journal`, `lines`, `calls` and `protection` are what several of them share.
"""
