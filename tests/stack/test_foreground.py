"""Output of `artimon up` while it waits for its parts."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from artimon.runtime.settings import load
from artimon.stack.foreground import _announce, _wait_healthy, browser_opener
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


@pytest.mark.parametrize(
    ("environ", "terminal", "opens"),
    [
        ({"DISPLAY": ":0"}, True, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True, True),
        ({"DISPLAY": ":0", "CI": "1"}, True, False),
        ({"DISPLAY": ":0"}, False, False),
        ({}, True, False),
    ],
)
def test_a_browser_is_opened_only_where_a_person_sees_it(
    environ: dict[str, str], terminal: bool, opens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}", SimpleNamespace(isatty=lambda: terminal))
    assert (browser_opener(load(environ)) is webbrowser.open) is opens


def test_the_link_is_told_and_given_to_the_browser() -> None:
    said: list[str] = []
    opened: list[str] = []
    addresses = {"ARTIMON_API": "http://127.0.0.1:8780"}
    running: Any = SimpleNamespace(addresses=lambda: addresses)
    _announce(running, said.append, 1.0, opened.append)
    assert opened == ["http://127.0.0.1:8780/start"]
    assert any("http://127.0.0.1:8780/start" in one for one in said)
    _announce(running, said.append, 1.0, None)
    addresses.clear()
    _announce(SimpleNamespace(addresses=lambda: {"ARTIMON_SMTP": "x"}), said.append, 1.0, opened.append)  # type: ignore[arg-type]
    assert len(opened) == 1
