"""Lines of StatsD and DogStatsD: aggregates of a period, over refusals of the log and restarts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from artimon.model.protocols import SinkRefusedError
from artimon.model.values import Kind
from sources.receive.statsd import IDLE_MS, StatsdReader
from sources.receive.statsd_aggregates import BOUNDS, MAX_MEMBERS, MS_BOUNDS
from tests.sources.receive.sender import MINUTE, Sender, T, run


class Statsd(Sender):
    @property
    def reader(self) -> StatsdReader:
        reader = self.source.reader
        assert isinstance(reader, StatsdReader)
        return reader

    def add(self, *lines: str) -> None:
        self.reader.aggregate("\n".join(lines).encode(), self.clock.now_ms())

    async def flush(self) -> tuple[int, str]:
        """End a period of a minute."""
        self.clock.advance(MINUTE)
        taken = await self.take_body(b"", str(self.clock.now_ms()))
        self.reader.settle()
        return taken


def check(test: Callable[[Statsd], Awaitable[None]], place: Path) -> None:
    async def whole(sender: Sender) -> None:
        assert isinstance(sender, Statsd)
        await test(sender)

    run(whole, lambda: Statsd(place / "state", StatsdReader))


def test_counters_are_counters_with_rates_applied(tmp_path: Path) -> None:
    async def test(sender: Statsd) -> None:
        sender.add("hits:3|c", "hits:2|c", "sampled:1|c|@0.1", "odd:1|c|@0.3", "many:1:2:3|c")
        assert await sender.flush() == (4, "")
        assert sender.values() == {"hits{}": 5, "sampled{}": 10, "odd{}": 1 / 0.3, "many{}": 6}
        sender.add("hits:1|c", "odd:1|c|@0.3")
        assert await sender.flush() == (4, "")
        assert sender.values() == {"hits{}": 6, "sampled{}": 10, "odd{}": 2 / 0.3, "many{}": 6}
        births = {text: born for text, _, born, _ in sender.sink.samples()}
        assert births["hits{}"] == T
        assert sender.kinds()["hits{}"][0] == Kind.COUNTER

    check(test, tmp_path)


@pytest.mark.parametrize("saved", [False, True])
def test_counts_go_on_after_a_restart(tmp_path: Path, saved: bool) -> None:
    async def test(sender: Statsd) -> None:
        sender.add("hits:3|c", "level:7|g", "took:5|ms")
        await sender.flush()
        await sender.restart(saved)
        sender.add("hits:2|c", "level:-2|g", "took:7|ms")
        await sender.flush()
        values = sender.values()
        assert (values["hits{}"], values["level{}"], values["took_count{}"], values["took_sum{}"]) == (5, 5.0, 2, 12.0)
        assert {born for text, _, born, _ in sender.sink.samples() if text == "hits{}"} == {T}

    check(test, tmp_path)


def test_what_the_log_refuses_is_kept_for_the_next_period(tmp_path: Path) -> None:
    async def test(sender: Statsd) -> None:
        sender.add("hits:3|c", "took:1|ms", "users:a|s")
        sender.sink.refusing = "full"
        with pytest.raises(SinkRefusedError):
            await sender.take_body(b"", str(sender.clock.now_ms()))
        sender.sink.refusing = ""
        sender.add("hits:2|c", "took:1|ms", "users:b|s")
        await sender.flush()
        values = sender.values()
        assert (values["hits{}"], values["took_count{}"], values["users{}"]) == (5, 2, 2.0)

    check(test, tmp_path)


def test_gauges_are_set_and_changed(tmp_path: Path) -> None:
    async def test(sender: Statsd) -> None:
        for lines, expected in (
            (["g:5|g"], 5.0),
            (["g:+3|g", "g:-1|g"], 7.0),
            ([], 7.0),
            (["g:-10|g"], -3.0),
            (["g:0|g", "g:-10|g"], -10.0),
        ):
            sender.add(*lines)
            await sender.flush()
            assert sender.values()["g{}"] == expected
        sender.add("new:+4|g")
        await sender.flush()
        sender.add("new:-1|g")
        await sender.flush()
        assert sender.values()["new{}"] == 3.0
        assert sender.kinds()["new{}"][0] == Kind.GAUGE

    check(test, tmp_path)


@pytest.mark.parametrize(("kind", "bounds"), [("ms", MS_BOUNDS), ("h", BOUNDS), ("d", BOUNDS)])
def test_timers_and_histograms_have_buckets(tmp_path: Path, kind: str, bounds: tuple[float, ...]) -> None:
    async def test(sender: Statsd) -> None:
        sender.add(f"took:5:5.1|{kind}|@0.5", f"took:1e9|{kind}")
        assert await sender.flush() == (len(bounds) + 3, "")
        values = sender.values()
        assert values['took_bucket{le="2.5"}'] == 0
        assert values['took_bucket{le="5"}'] == 2
        assert values['took_bucket{le="10"}'] == 4
        assert values[f'took_bucket{{le="{bounds[-1]:.0f}"}}'] == 4
        assert values['took_bucket{le="+Inf"}'] == values["took_count{}"] == 5
        assert values["took_sum{}"] == 20.2 + 1e9
        await sender.flush()
        assert sender.values() == values
        assert sender.kinds()["took_count{}"][0] == Kind.COUNTER

    check(test, tmp_path)


def test_sets_are_counted_by_period(tmp_path: Path) -> None:
    async def test(sender: Statsd) -> None:
        sender.add("users:a|s", "users:b|s", "users:a|s")
        await sender.flush()
        assert sender.values()["users{}"] == 2.0
        sender.add("users:a|s")
        await sender.flush()
        assert sender.values()["users{}"] == 1.0
        sender.add(*(f"users:{n}|s" for n in range(MAX_MEMBERS + 5)))
        assert "large set" in (await sender.flush())[1]
        assert sender.values()["users{}"] == MAX_MEMBERS

    check(test, tmp_path)


def test_tags_in_all_forms(tmp_path: Path) -> None:
    async def test(sender: Statsd) -> None:
        sender.add(
            "a:1|c|#env:prod,host:h1,beta",
            "b;env=prod:1|c",
            "c,env=prod,x=y:1|c",
            "d:1|c|@1|#url:http://x,c:d|c:container",
            "e.f-g h:1|c",
            "a:1|c|#env:prod,host:h1,beta",
        )
        assert await sender.flush() == (5, "")
        assert sender.values() == {
            'a{beta="true",env="prod",host="h1"}': 2,
            'b{env="prod"}': 1,
            'c{env="prod",x="y"}': 1,
            'd{c="d",url="http://x"}': 1,
            "e.f-g_h{}": 1,
        }

    check(test, tmp_path)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("a", "NAME:VALUE"),
        ("a:1", "NAME:VALUE"),
        (":1|c", "without a name"),
        ("a:x|c", "not a number"),
        ("a:nan|g", "not finite"),
        ("a:1|q", "no type"),
        ("a:1|c|@0", "rate"),
        ("a:1|c|@1e-400", "rate"),
        ("a:1|c|@2", "rate"),
        ("_e{1,1}:a|b", "not supported"),
        ("_sc|a|0", "not supported"),
        ("a:1|c|T1656581400", "not supported"),
        ("a:" + "1" * 70_000 + "|c", "long line"),
    ],
)
def test_bad_lines_are_counted(tmp_path: Path, line: str, told: str) -> None:
    async def test(sender: Statsd) -> None:
        sender.add("good:1|c", line, "good:1|c")
        samples, fault = await sender.flush()
        assert (samples, told in fault) == (1, True), fault
        assert sender.values() == {"good{}": 2}
        assert sender.source.refused.total() == 1
        assert any(told in text for text in sender.figures.to_json()["problems"])

    check(test, tmp_path)


def test_what_is_idle_ends(tmp_path: Path) -> None:
    async def test(sender: Statsd) -> None:
        sender.add("a:1|c")
        for _ in range(IDLE_MS // MINUTE - 1):
            assert await sender.flush() == (1, "")
        assert sender.source.series.live == 1
        await sender.flush()
        assert sender.source.series.live == 0
        assert await sender.flush() == (0, "")
        sender.add("a:1|c")
        assert await sender.flush() == (1, "")
        assert sender.values()["a{}"] == 2

    check(test, tmp_path)


def test_the_series_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.receive.statsd.MAX_SERIES", 20)

    async def test(sender: Statsd) -> None:
        sender.add("t:1|ms", *(f"c{n}:1|c" for n in range(10)))
        samples, fault = await sender.flush()
        assert (samples, "too many series" in fault) == (20, True)
        assert sender.source.refused["too many series"] == 8

    check(test, tmp_path)
