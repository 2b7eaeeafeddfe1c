"""Foreign servers and scripts that an agent polls: bean servers, Prometheus pages, programs.

Read `sources_file` and `target_files` (configuration), `foreign_sources` (all sources), `server` (common base), then
`prometheus`, `jmx`, `script`. May import `sources.dropin`, `sources.delivery` and the layers below it.
"""
