"""Plaintext of Graphite and line protocol of InfluxDB: names, labels, types, times, faults."""

from __future__ import annotations

import gzip
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sources.receive.graphite import GraphiteReader
from sources.receive.influx import MAX_DECODED_BYTES, InfluxReader
from sources.receive.line_body import MAX_LINE
from sources.receive.received_columns import BodyError, ReceivedColumns
from sources.state.relabel import RelabelRules, make_relabel_rule
from tests.seeds import fixed_and_drawn
from tests.sources.receive.sender import MINUTE, Sender, T, run

INFLUX = f"{T}:ns::"


def check(
    make: Callable[[RelabelRules | None], ReceivedColumns],
    test: Callable[[Sender], Awaitable[None]],
    place: Path,
    rules: Sequence[Any] = (),
) -> None:
    run(test, lambda: Sender(place / "state", make, rules))


def test_paths_of_graphite_are_names_and_tags_are_labels(tmp_path: Path) -> None:
    s = T // 1000

    async def test(sender: Sender) -> None:
        lines = f"a.b.c 1.5 {s}\ndisk;host=h1;a-b=x 7 {s - 60}\nnow 3\nnow2 4 -1\nnow3 5 N\r\n"
        assert await sender.take_body(lines.encode(), str(T)) == (5, "")
        assert sender.rows() == [
            ("a.b.c{}", T, 1.5),
            ('disk{a_b="x",host="h1"}', T - MINUTE, 7.0),
            ("now{}", T, 3.0),
            ("now2{}", T, 4.0),
            ("now3{}", T, 5.0),
        ]
        assert await sender.take_body(lines.encode(), str(T)) == (0, "")

    check(GraphiteReader, test, tmp_path)


def test_rules_take_paths_apart(tmp_path: Path) -> None:
    path = r"servers\.([^.]+)\.cpu\.(\w+)"
    rules = [
        make_relabel_rule("a", source_labels=["__path"], regex=path, target_label="host"),
        make_relabel_rule("b", source_labels=["__path"], regex=path, target_label="mode", replacement="$2"),
        make_relabel_rule("c", source_labels=["__path"], regex=path, target_label="__name__", replacement="cpu"),
    ]

    async def test(sender: Sender) -> None:
        assert await sender.take_body(b"servers.h1.cpu.idle 5", str(T)) == (1, "")
        assert sender.values() == {'cpu{host="h1",mode="idle"}': 5.0}

    check(GraphiteReader, test, tmp_path, rules)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"a", "PATH VALUE TIME"),
        (b"a 1 2 3", "PATH VALUE TIME"),
        (b"a x 1", "not a number"),
        (b"a nan", "not a number"),
        (b"a 1_0", "not a number"),
        (b"a 1 inf", "not finite"),
        (b"\xff 1", "UTF-8"),
        (b"a 1 1", "bad time|too old"),
        (b"x" * (MAX_LINE + 10) + b" 1", "more than"),
        (b"a;=v;" + b"k=v;" * 300 + b" 1", "a"),
    ],
)
def test_a_bad_line_of_graphite_is_refused_alone(tmp_path: Path, line: bytes, told: str) -> None:
    async def test(sender: Sender) -> None:
        samples, fault = await sender.take_body(b"good 1\n" + line + b"\ngood2 2\n", str(T))
        if b"k=v" not in line:  # equal tags are joined
            assert (samples, any(one in fault for one in told.split("|"))) == (2, True), fault

    check(GraphiteReader, test, tmp_path)


def test_fields_of_influx_have_their_types(tmp_path: Path) -> None:
    ns = T * 1_000_000
    lines = (
        rf'weather,city=New\ York,a\,b=c\=d temp=20.5,hum=40i,big=7u,rain=f,text="say \"hi\", \\ a=b",neg=-3i {ns}'
        "\n# comment\n\n"
        f'multi note="two\nlines",n=1 {ns}\nplain value=1e3\n'
    )

    async def test(sender: Sender) -> None:
        assert await sender.take_body(lines.encode(), INFLUX) == (9, "")
        labels = '{a_b="c=d",city="New York"}'
        assert sender.values() == {
            f"weather.temp{labels}": 20.5,
            f"weather.hum{labels}": 40,
            f"weather.big{labels}": 7,
            f"weather.rain{labels}": False,
            f"weather.text{labels}": 'say "hi", \\ a=b',
            f"weather.neg{labels}": -3,
            "multi.note{}": "two\nlines",
            "multi.n{}": 1.0,
            "plain.value{}": 1000.0,
        }
        types = {text.partition("{")[0]: type(value) for text, _, value in sender.rows()}
        assert (types["weather.hum"], types["weather.rain"], types["weather.temp"]) == (int, bool, float)
        assert await sender.take_body(gzip.compress(lines.encode()), f"{T}:ns::gzip") == (0, "")

    check(InfluxReader, test, tmp_path)


@pytest.mark.parametrize(
    ("precision", "time"),
    [
        ("ns", T * 1_000_000 + 5),
        ("us", T * 1_000),
        ("ms", T),
        ("s", T // 1_000),
        ("m", T // 60_000),
        ("h", T // 3_600_000),
        *[("auto", T * factor // 1_000) for factor in (1, 1_000, 1_000_000, 1_000_000_000)],
    ],
)
def test_precisions_of_influx(tmp_path: Path, precision: str, time: int) -> None:
    async def test(sender: Sender) -> None:
        assert await sender.take_body(f"a v=1 {time}".encode(), f"{T}:{precision}::") == (1, "")
        assert sender.rows() == [("a.v{}", T, 1.0)]

    check(InfluxReader, test, tmp_path)


def test_rules_see_measurement_field_and_database(tmp_path: Path) -> None:
    rules = [
        make_relabel_rule(
            "a",
            source_labels=["__database", "__measurement", "__field"],
            separator="_",
            target_label="__name__",
        )
    ]

    async def test(sender: Sender) -> None:
        assert await sender.take_body(b"cpu idle=1", f"{T}:ns:telegraf:") == (1, "")
        assert sender.values() == {"telegraf_cpu_idle{}": 1.0}

    check(InfluxReader, test, tmp_path, rules)


@pytest.mark.parametrize(
    "line",
    [
        b"a",
        b"a v",
        b"a v=",
        b"a v=1,",
        b"a ,v=1",
        b"a v=x",
        b"a v=1 1 1",
        b"a v=1x",
        b"a v=99999999999999999999u",
        b"a v=9223372036854775808i",
        b"a v=nan",
        b'a v="open',
        b"a,t v=1",
        b"a,=x v=1",
        b"\xff v=1",
        b'a v="' + b"x" * 40_000 + b'"',
        b"a" * (MAX_LINE + 1) + b" v=1",
        b"a v=1,w=x",
    ],
)
def test_a_bad_line_of_influx_is_refused_alone(tmp_path: Path, line: bytes) -> None:
    async def test(sender: Sender) -> None:
        samples, fault = await sender.take_body(b"good v=1\n" + line + b"\ngood2 v=2\n", INFLUX)
        assert (samples, fault.partition(":")[0] in ("bad line", "long line")) == (2, True), fault
        assert {text for text, _, _ in sender.rows()} <= {"good.v{}", "good2.v{}"}

    check(InfluxReader, test, tmp_path)


def test_bombs_and_random_bytes(tmp_path: Path) -> None:
    async def test(sender: Sender) -> None:
        with pytest.raises(BodyError, match="more than"):
            await sender.take_body(gzip.compress(bytes(2 * MAX_DECODED_BYTES)), f"{T}:ns::gzip")
        for body in (b"x", gzip.compress(b"a v=1")[:-4]):
            with pytest.raises(BodyError):
                await sender.take_body(body, f"{T}:ns::gzip")
        with pytest.raises(BodyError, match="samples"):
            await sender.take_body(b"a v=1\n" * 200_001, INFLUX)

    check(InfluxReader, test, tmp_path)


@pytest.mark.parametrize("make", [GraphiteReader, InfluxReader])
@pytest.mark.parametrize("seed", fixed_and_drawn([1], "lines"))
def test_any_bytes_are_taken_or_refused(tmp_path: Path, make: Any, seed: int) -> None:
    dice = random.Random(seed)
    start = b'a,b=c d=1,e="f",g=2i 1800000000000000000\nx.y;a=b 1 1800000000\n'

    async def test(sender: Sender) -> None:
        for _ in range(100):
            data = bytearray(start * dice.randrange(1, 4))
            for _ in range(dice.randrange(1, 8)):
                at = dice.randrange(len(data))
                data[at : at + dice.randrange(3)] = dice.randbytes(dice.randrange(3))
            await sender.take_body(bytes(data), INFLUX if make is InfluxReader else str(T))

    check(make, test, tmp_path)


def test_many_quotes_take_linear_time(tmp_path: Path) -> None:
    """A regular expression must not go back over a long line again and again."""

    async def test(sender: Sender) -> None:
        for piece in (b'"', b"\\", b'a="', b"=", b",", b' a="b', b"\\\\,"):
            body = b"a " + piece * (MAX_LINE // len(piece) - 8)
            assert (await sender.take_body(body, INFLUX))[0] == 0

    check(InfluxReader, test, tmp_path)
