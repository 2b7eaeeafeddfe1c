"""Artimon: typed, labelled variables, collected once a minute, asked by equivalence classes.

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
    """A session with the memory store: of the ZooKeeper named (host:port), else of the stack that runs on `data`, else
    as ARTIMON_ZOOKEEPER or the stack on the default folder say. Queries without a session go to the newest one.

    Raises NotRunning if `data` is named and no stack runs on it. Whether servers answer shows at the first question."""
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
    """Every sample with time in (start, end] of every series that fits, from the raw table on HDFS: of the URI named,
    else of the stack on `data`, else as ARTIMON_HDFS or the stack on the default folder say.

    `options` are those of query_dsl.stores.history.engine.History.read. Several questions are faster through one
    session: `artimon.connect().history(...)`. Raises QueryError; HistoryError if there is no history or it cannot be
    read."""
    from artimon.stack.locate import located
    from query_dsl.stores.history.engine import History

    place = located(Path(data) if data is not None else None)
    with History(hdfs or place.hdfs) as engine:
        return engine.read(selector, start, end, **options)
