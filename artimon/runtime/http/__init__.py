"""HTTP servers of the platform: uvicorn with limits of size and time, for the API and for receivers.

Reading order: `http_limits` (and error answers), `body_limit` (request bodies), `deadline_protocol` (slow clients),
`http_server`."""
