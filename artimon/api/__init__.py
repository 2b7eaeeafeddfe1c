"""HTTP and Thrift API of the cluster, and the page.

Parts in reading order: `question` (text within limits), `desk` and `gate` (slots, queue, time limit), `guarded` (limits
of one query), `formats`, `arrow_form`, `parcel` (answers piece by piece), `routes` and `quick` (addresses),
`matrix_service` (Thrift), `app`, `server` (the process). `limits` and `errors` say what is refused and why.

May import alerts, query_dsl, varstore, pipeline, artimon.model and artimon.runtime, never artimon.stack. Order inside:
the contract in pyproject.toml."""
