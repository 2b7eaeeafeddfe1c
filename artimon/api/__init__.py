"""HTTP and Thrift API of the cluster, and the web page.

Modules in reading order: `question` (parameters of a query), `desk` and `gate` (slots, queue, timeout), `guarded`
(limits of one query), `formats`, `arrow_form`, `parcel` (answers in pieces), `routes` and `quick` (endpoints),
`matrix_service` (Thrift), `app`, `server` (the process), `limits`, `errors`.

May import alerts, query_dsl, varstore, pipeline, artimon.model and artimon.runtime, never artimon.stack. Order inside:
the contract in pyproject.toml."""
