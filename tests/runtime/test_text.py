"""Texts that people write: what is read, what is refused, and what is near."""

from __future__ import annotations

import pytest

from artimon.runtime.text import (
    did_you_mean,
    format_duration,
    near_names,
    parse_address,
    parse_duration,
    parse_period,
    parse_process_names,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("1.5m", 90_000),
        ("2min", 120_000),
        ("1h30m", 5_400_000),
        (" 1w2d ", 777_600_000),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration(text) == ms
    assert parse_duration(format_duration(ms)) == ms


@pytest.mark.parametrize("text", ["", "5", "5x", "-5m", "5 m", "1e3s", "m", "9" * 10_000 + "w", "٣s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


def test_a_period_has_at_least_a_second() -> None:
    assert parse_period("1s") == 1000
    with pytest.raises(ValueError, match="too short"):
        parse_period("999ms")


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("20GiB", 20 << 30), ("25 m", 25 << 20), ("64 MB", 64 << 20), ("1T", 1 << 40), ("7b", 7)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "-1", "1e9", "20 GiB free", "1PiB"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "place"), [("h:1", ("h", 1)), ("10.0.0.1:65535", ("10.0.0.1", 65_535)), ("[::1]:25", ("::1", 25))]
)
def test_addresses(text: str, place: tuple[str, int]) -> None:
    assert parse_address(text) == place


@pytest.mark.parametrize("text", ["", "h", ":1", "h:0", "h:65536", "h:x", "::1", "2001:db8::1:2181", "[::1]", "h:²"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_address(text)


def test_names_of_processes() -> None:
    assert parse_process_names("0,a-1") == ("0", "a-1")
    for text in ("", "0,,1", "a/b", "..", "a b", "x" * 201):
        with pytest.raises(ValueError, match="cannot be a name"):
            parse_process_names(text)


def test_near_names() -> None:
    assert near_names("colector", ["collector", "agent"]) == ["collector"]
    assert near_names("load", ["host.load.1m"]) == ["host.load.1m"]
    assert did_you_mean("pol", ["poll", "level"]) == "; did you mean poll?"
    assert did_you_mean("port", ["type"]) == "; there are type"
    assert did_you_mean("port", []) == ""
