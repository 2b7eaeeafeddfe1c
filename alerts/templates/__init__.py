"""Templates of texts and labels: parsed to nodes, and rendered within limits; nothing of a template is executed.

Read `template_nodes`, then `renderer`, `template_functions` and `value_formats`; `go_parser` reads templates of
Prometheus, `jinja_parser` those of our own rule files. Imports only `artimon.runtime` and libraries.
"""
