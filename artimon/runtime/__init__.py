"""Runtime of every process: texts that people write, options of processes.

Reading order: `text`, `options`. Imports `artimon.model` and `bookkeeper` only."""
