"""Foreign servers and scripts that an agent polls: bean servers, Prometheus pages, programs.

Read `sources_file` and `target_files` (configuration), `scrape_manager` (all sources), `server` (common base), then
`prometheus`, `jmx`, `script`. May import `sources.dropin`, `sources.delivery` and the layers below it.
"""
