"""Decoding of znodes, which any client with write access may have written.

A reader of many nodes skips an invalid one and reports it to the operator."""

from __future__ import annotations

import json
import math
from typing import Any

MAX_BYTES = 1024 * 1024
"""Limit of a node, bytes: ZooKeeper's own default (jute.maxbuffer)."""


def parse_json_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object of a node.

    Raises ValueError for anything else, also for too deep nesting and for numbers that are not finite: a reader of many
    nodes must survive each of them."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"a node of {len(data)} bytes: at most {MAX_BYTES}")
    try:
        found = json.loads(data, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"not a JSON object: {data[:100]!r}")
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is not finite")
    return value


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is not a number in JSON")
