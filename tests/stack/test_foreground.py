"""Output of `artimon up` while it waits for its parts."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from artimon.stack.foreground import _wait_healthy
from artimon.stack.stack_errors import NotHealthyError


def stack(outcomes: Iterator[dict[str, str]]) -> Any:
    """One each of whose waits ends in one of `outcomes`; then it is healthy."""

    def wait_healthy(timeout_s: float) -> None:
        if parts := next(outcomes, None):
            raise NotHealthyError(timeout_s, parts)

    parts = [SimpleNamespace(name=name) for name in ("kafka", "shard", "spark")]
    return SimpleNamespace(parts=parts, wait_healthy=wait_healthy)


def test_a_start_that_takes_long_says_for_whom_it_waits() -> None:
    said: list[str] = []
    first = {"kafka": "starting ConnectionRefusedError", "shard": "waiting", "spark": "waiting"}
    _wait_healthy(stack(iter([first, {"spark": "starting"}])), said.append)
    assert said == ["still waiting for kafka; 2 parts start after these", "still waiting for spark"]


def test_a_supervisor_that_failed_is_not_waited_for() -> None:
    with pytest.raises(NotHealthyError, match="MemoryError"):
        _wait_healthy(stack(iter([{"supervisor": "MemoryError()"}])), print)
