"""Sources of an agent: from applications, hosts, files and foreign servers to batches in the log.

Front door: `artimon_source`. Below it, in layers: `poll` (processes), `scrape` (servers and scripts) and `host`;
`dropin` (files); `delivery` (shared on the way to the log); `targets`; `state` (memory of a source); `base`.
May import `artimon.compute`, `artimon.model`, `artimon.runtime` and `bookkeeper`; never `pipeline` or `varstore`.
"""
