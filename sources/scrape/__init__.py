"""Foreign servers and scripts that an agent asks: bean servers, Prometheus pages, programs.

Read `sources_file` and `target_files` (configuration), `foreign_sources` (all of them), `server` (what they have in
common), then `prometheus`, `jmx`, `script`. May import `sources.dropin`, `sources.delivery` and what is below it.
"""
