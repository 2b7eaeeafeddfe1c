"""Shows the variables of a process to Prometheus over HTTP: docs/integrations.md "Prometheus"."""

from __future__ import annotations

import bookkeeper
from bookkeeper.export.metrics_server import LOOPBACK, MetricsServer
from bookkeeper.export.metrics_server import serve as serve_book

__all__ = ["MetricsServer", "serve"]


def serve(address: str = f"{LOOPBACK}:0", book: bookkeeper.Bookkeeper | None = None) -> MetricsServer:
    """Shows the variables of `book` (default: the default one) at http://address/metrics; the server that does it.

    ValueError for an address that cannot be read, OSError if no port is free. It ends with the process, and is not
    inherited by forked children; for those ARTIMON_OPENMETRICS with a range of ports is made."""
    return serve_book(address, book or bookkeeper.default())
