"""Export of variables other than by a poll: to Prometheus, and to files for the agent of the host.

Read `openmetrics` (the text formats), `metrics_server` (HTTP for Prometheus), `dropin_file` (drop-in files),
`final_file` (last values of a process that ends). May import `bookkeeper.rpc`, `bookkeeper.variables` and
`bookkeeper.runtime`.
"""
