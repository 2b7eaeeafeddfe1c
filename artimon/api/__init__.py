"""HTTP and Thrift API of the cluster, and the web page.

Modules in reading order: `query_parameters` (parameters of a query), `query_executor` and `bounded_executor` (slots,
queue, timeout), `limited_store` (limits of one query), `formats`, `arrow_format`, `buffered_answer` (answers in
pieces), `endpoint_states` and `fleet_status` (from self metrics), `routes` and `fast_path` (endpoints),
`matrix_service` (Thrift), `prometheus_format` and `prometheus_routes` (the API of Prometheus), `app`, `api_server`
(the process), `api_limits`, `api_errors`.

May import alerts, query_dsl, varstore, pipeline, artimon.model and artimon.runtime, never artimon.stack. Order inside:
the contract in pyproject.toml."""
