"""Classes of retention by name: a batch is of one class, and nothing else changes."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path

import pytest

from artimon.model.batch import MAX_SAMPLES, BatchId, BatchKind, PollResult, Samples
from artimon.model.batch_codec import decode_samples, encode_samples
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.values import Value
from sources.delivery.reading_delivery import ReadingDelivery
from sources.delivery.source_counts import SourceCounts
from sources.state.retention_rules import MAX_CLASSES, RetentionDivider, RetentionRuleError, parse_retention_rules
from sources.state.source_reading import Reading, ReadingBuilder, SourceVariable
from sources.state.state_store import SourceStateStore
from tests.pipeline.test_intake import open_intake
from tests.sources.helpers import HOST, KeepingSink, running
from tests.waiting import until

RULES = (r"debug\..*important=default", r"debug\..*=debug", "trace|.*[.]trace=short")


def delivery(folder: Path, sink: KeepingSink, *rules: str) -> ReadingDelivery:
    folder.mkdir(exist_ok=True)
    keeping = RetentionDivider(parse_retention_rules(rules))
    return ReadingDelivery(sink, SourceStateStore(folder, 100_000), SourceCounts(), SYSTEM_CLOCK, keeping=keeping)


def deliver(to: ReadingDelivery, *readings: Reading, end: bool = False) -> None:
    """Deliver each as a poll of one source, then its end."""

    async def run() -> None:
        series = to.store.get("shop/web1/0")
        for reading in readings:
            await to.send(series, reading, await to.place(series, reading, {}))
        if end:
            await to.end(series)

    asyncio.run(run())


def readings(*polls: dict[str, Value]) -> list[Reading]:
    maker = ReadingBuilder(bytes(16), 500)
    return [
        maker.make([SourceVariable(name, {"n": "1"}, value) for name, value in poll.items()], 1_000 * (n + 1))
        for n, poll in enumerate(polls)
    ]


def by_class(sink: KeepingSink) -> dict[str, list[tuple[str, int, Value | None]]]:
    """(name, time, value) of each class, in the order of acceptance."""
    texts, found = sink.texts(), dict[str, list[tuple[str, int, Value | None]]]()
    for polled in sink.accepted:
        rows = [(texts[print_].partition("{")[0], time, value) for print_, time, _, value in polled.samples.rows()]
        found.setdefault(polled.keep, []).extend(rows)
    return found


def test_each_batch_is_of_one_class_and_ends_too(tmp_path: Path) -> None:
    sink = KeepingSink()
    first: dict[str, Value] = {"a": 1, "debug.x": 3, "debug.x.important": 2, "a.trace": 0.5, "traces": True}
    deliver(delivery(tmp_path, sink, *RULES), *readings(first, {"a": 2, "debug.x": 4}), end=True)
    assert by_class(sink) == {
        "default": [("a", 1000, 1), ("debug.x.important", 1000, 2), ("traces", 1000, True), ("a", 2000, 2),
                    ("debug.x.important", 2000, None), ("traces", 2000, None), ("a", last(sink), None)],
        "debug": [("debug.x", 1000, 3), ("debug.x", 2000, 4), ("debug.x", last(sink), None)],
        "short": [("a.trace", 1000, 0.5), ("a.trace", 2000, None)],
    }  # fmt: skip


def last(sink: KeepingSink) -> int:
    """Time of the end."""
    return max(int(polled.samples.time_ms.max()) for polled in sink.accepted)


def announced(sink: KeepingSink) -> list[object]:
    return [polled.blocks for polled in sink.accepted if polled.blocks]


def test_rules_change_nothing_but_the_class(tmp_path: Path) -> None:
    """The same samples and announcements as without, each once; batches of any size."""
    many: dict[str, Value] = {f"{'debug' if n % 3 else 'web'}.v{n}": n for n in range(MAX_SAMPLES + 500)}
    given = readings(many, {**many, "new": 1.5}, many)
    plain, ruled = KeepingSink(), KeepingSink()
    deliver(delivery(tmp_path / "plain", plain), *given)
    deliver(delivery(tmp_path / "ruled", ruled, *RULES), *given)
    assert {polled.keep for polled in plain.accepted} == {"default"}
    assert Counter(ruled.samples()) == Counter(plain.samples())
    assert announced(ruled) == announced(plain)
    assert max(len(polled.samples) for polled in ruled.accepted) <= MAX_SAMPLES
    names = {keep: {name.partition(".")[0] for name, _, _ in rows} for keep, rows in by_class(ruled).items()}
    assert names == {"default": {"web", "new"}, "debug": {"debug"}}


def test_texts_stay_with_their_rows(tmp_path: Path) -> None:
    to = delivery(tmp_path, KeepingSink(), *RULES)
    deliver(to, *readings({"a": 1, "debug.x": 2}))
    series = to.store.get("shop/web1/0")
    web, debug = (int(one) for one in series.rows.state["fingerprint"])
    rows: list[tuple[int, int, int, Value | None]] = [(debug, 1, 0, "x"), (web, 1, 0, "y"), (debug, 2, 0, "z")]
    polled = PollResult(series.name, bytes(16), 0, 2, Samples.of(rows))
    found = to.divider.divide(series, [polled])
    assert [(one.keep, one.samples.rows()) for one in found] == [("default", rows[1:2]), ("debug", rows[::2])]
    sent = encode_samples(BatchId("a", 1, 0, 0), series.name, bytes(16), 0, 2, found[1].keep, found[1].samples)
    assert decode_samples(sent.header, sent.data).rows() == rows[::2]


def test_the_log_of_an_agent_holds_batches_of_each_class(tmp_path: Path) -> None:
    """Numbered without gaps in the one lane of their source; a replay tells the source of them all."""
    log, intake, told = open_intake(tmp_path / "log")
    to = ReadingDelivery(
        intake,
        SourceStateStore(tmp_path, 100),
        SourceCounts(),
        SYSTEM_CLOCK,
        keeping=RetentionDivider(parse_retention_rules(RULES)),
    )
    deliver(to, *readings({"a": 1, "debug.x": 2}, {"a": 3, "debug.x": 4}))
    headers = [entry.header for entry, _ in told.placed if entry.header.kind == BatchKind.SAMPLES]
    assert [(one.keep, one.id.sequence, one.rows) for one in headers] == [
        ("default", 0, 1), ("debug", 1, 1), ("default", 2, 1), ("debug", 3, 1)
    ]  # fmt: skip
    assert len({one.id.lane for one in headers}) == 1
    log.close()
    log, intake, _ = open_intake(tmp_path / "log")
    again = SourceStateStore(tmp_path / "new", 100)
    again.load(intake.replay(), SYSTEM_CLOCK.now_ms())
    assert again.get("shop/web1/0").rows.state["cell"].tolist() == [3, 4]
    log.close()


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (["debug"], "write PATTERN=CLASS"),
        (["=debug"], "write PATTERN=CLASS"),
        (["debug.*="], "1 to 64 of letters, digits"),
        (["a=b/../c"], "'b/../c' must be 1 to 64"),
        (["(=debug"], "not valid RE2: missing )"),
        ([f"a{n}=c{n}" for n in range(MAX_CLASSES)], f"at most {MAX_CLASSES}"),
    ],
)
def test_rules_that_cannot_be(rules: list[str], said: str) -> None:
    with pytest.raises(RetentionRuleError, match=re.escape(said)):
        parse_retention_rules(rules)


@pytest.mark.stack
def test_an_agent_is_told_by_its_settings(tree: str, tmp_path: Path) -> None:
    async def run() -> None:
        sink = KeepingSink()
        rules = parse_retention_rules(["host[.]volume[.].*=week"])
        async with running(tree, tmp_path / "data", sink, host_metrics=True, keep=rules):
            await until(lambda: len(sink.samples(f"host/{HOST}")) > 0, "the host")
        found = by_class(sink)
        assert {name.startswith("host.volume.") for name, _, _ in found["week"]} == {True}
        assert {name.startswith("host.volume.") for name, _, _ in found["default"]} == {False}

    asyncio.run(run())
