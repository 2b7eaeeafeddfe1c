"""Artimon: typed, labelled variables, collected once a minute, asked by equivalence classes.

>>> import artimon
>>> session = artimon.connect()  # doctest: +SKIP
>>> session.fetch("shop.requests").rate("1m").sum(by=["route"]).plot()  # doctest: +SKIP
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from artimon.session import Session

__all__ = ["connect"]


def connect(zookeeper: str | None = None, data: Path | str | None = None) -> Session:
    """A session with the memory store: of the ZooKeeper named (host:port), else of the stack that runs on `data`, else
    as ARTIMON_ZOOKEEPER or the stack on the default folder say. Queries without a session go to the newest one.

    Raises NotRunning if `data` is named and no stack runs on it. Whether servers answer shows at the first question."""
    from artimon.session import open_session

    return open_session(zookeeper, data)
