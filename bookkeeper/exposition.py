"""HTTP endpoint that exposes the variables of a process to Prometheus: docs/integrations.md "Prometheus"."""

from __future__ import annotations

import bookkeeper
from bookkeeper.export.metrics_server import LOOPBACK, MetricsServer
from bookkeeper.export.metrics_server import serve as serve_book

__all__ = ["MetricsServer", "serve"]


def serve(address: str = f"{LOOPBACK}:0", book: bookkeeper.Bookkeeper | None = None) -> MetricsServer:
    """Starts a server that exposes the variables of `book` (default: the default object) at http://address/metrics.

    Raises ValueError for an invalid address, OSError if no port is free. The server ends with the process. Forked
    children do not inherit it; use ARTIMON_OPENMETRICS with a range of ports for them."""
    return serve_book(address, book or bookkeeper.default())
