"""The collector's Thrift service, loaded once, on first use."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import thriftpy2

OPEN_METHOD = "open"
"""First call of a connection that carries several calls at a time."""


@cache
def collector_idl() -> Any:
    """Return the module of collector.thrift: `.Collector`, `.Answer`."""
    path = Path(__file__).with_name("collector.thrift")
    return thriftpy2.load(str(path), module_name="artimon_collector_thrift")
