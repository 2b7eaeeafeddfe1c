"""Artimon: typed, labelled variables, collected once a minute, queried by equivalence classes.

>>> import artimon
>>> session = artimon.connect()  # doctest: +SKIP
>>> session.fetch("shop.requests").rate("1m").sum(by=["route"]).plot()  # doctest: +SKIP
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from artimon.session import Session
    from query_dsl.stores.history.result import HistoryAnswer

__all__ = ["connect", "history"]


def connect(zookeeper: str | None = None, data: Path | str | None = None) -> Session:
    """Open a session with the memory store. Its ZooKeeper is `zookeeper` (host:port), else that of the stack on `data`,
    else ARTIMON_ZOOKEEPER or that of the stack on the default folder. Queries without a session use the newest one.

    Raises NotRunningError if `data` is given and no stack runs on it. The first query shows whether servers answer."""
    from artimon.runtime.version import requirements_named

    with requirements_named():
        from artimon.session import open_session

    return open_session(zookeeper, data)


def history(
    selector: str,
    start: object,
    end: object = "now",
    *,
    hdfs: str | None = None,
    data: Path | str | None = None,
    **options: Any,
) -> HistoryAnswer:
    """Read every sample with time in (start, end] of the series that match, from the raw table on HDFS. Its URI is
    `hdfs`, else that of the stack on `data`, else ARTIMON_HDFS or that of the stack on the default folder.

    `options` are those of query_dsl.stores.history.engine.History.read. Several queries are faster through one
    session: `artimon.connect().history(...)`. Raises QueryError, and HistoryError if the history is missing or
    unreadable."""
    from artimon.runtime.version import requirements_named

    with requirements_named():
        from artimon.stack.stack_location import locate_settings
        from query_dsl.stores.history.engine import History

    place = locate_settings(Path(data) if data is not None else None)
    with History(hdfs or place.hdfs) as engine:
        return engine.read(selector, start, end, **options)
