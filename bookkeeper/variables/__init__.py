"""Variables of one process: names and labels, cells, histograms, timers, callbacks, and the snapshot that a poll reads.

Read `canonical` and `validation` (valid input), `cell` (one variable, and its handle), `cell_table`, then the registry,
a chain of classes with one job each: `cell_lookup` finds a cell, `allocation` chooses the cell that takes a write,
`variable_registry` writes, `process_variables` adds histograms, timers and callbacks. `snapshot` reads them.
May import `bookkeeper.runtime`. No network, no files but the log.
"""
