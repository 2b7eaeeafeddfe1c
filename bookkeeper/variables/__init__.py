"""Variables of one process: names and labels, cells, histograms, timers, callbacks, and the snapshot that a poll reads.

Read `canonical` and `validation` (what may be written), `cell` (one variable, and its handle), `cell_table`, then the
registry, a chain of classes in which each adds one job: `lookup` finds a cell, `allocation` decides which cell a write
goes to, `variable_registry` writes, `process_variables` adds histograms, timers and callbacks. `snapshot` reads them.
May import `bookkeeper.runtime`; does no network, and no file but the log.
"""
