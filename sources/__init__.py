"""Sources of an agent: they read applications, hosts, files and foreign servers and write batches to the log.

Front doors: `artimon_source`; `history` (files of the past, for an import). Below them, in layers: `poll` (processes),
`scrape` (servers and scripts) and `host`; `dropin` (files); `delivery` (shared path to the log); `targets`; `state`
(memory of a source); `base`.
May import `artimon.compute`, `artimon.model`, `artimon.runtime` and `bookkeeper`; never `pipeline` or `varstore`.
"""
