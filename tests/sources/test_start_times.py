"""Start times and ends against a slow reference that handles one series at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.fingerprint import fingerprint
from artimon.model.labels import canonical
from artimon.model.values import Kind, Value, ValueType, double_to_cell
from sources.state.schema_binding import bind_schema
from sources.state.series_memory import SourceSeries
from sources.state.source_reading import Reading, SourceSchema
from sources.state.start_times import KnownSeries, PolledSeries, start_times


@dataclass
class Poll:
    """One poll of one process: name -> (kind, value)."""

    process: int
    variables: Mapping[str, tuple[Kind, Value]]


@dataclass
class Reference:
    """Rules of start times, one series at a time."""

    process: int = -1
    poll_ms: int = 0
    live: dict[str, tuple[float, int]] = field(default_factory=dict)

    def poll(self, poll: Poll, time_ms: int) -> dict[str, tuple[int, Value | None]]:
        """Name -> (birth, value) of the rows that this poll must yield."""
        rows: dict[str, tuple[int, Value | None]] = {}
        process_ms = process_birth(poll.process)
        same = poll.process == self.process
        live: dict[str, tuple[float, int]] = {}
        for name, (kind, value) in poll.variables.items():
            number = float(value) if not isinstance(value, str) else 0.0
            birth = process_ms
            if same and name in self.live:
                last, birth = self.live[name]
                if kind == Kind.COUNTER and not isinstance(value, str | bool) and number < last:
                    birth = self.poll_ms
            elif same:
                birth = self.poll_ms
            rows[name] = (birth, value)
            live[name] = (number, birth)
        for name in self.live.keys() - poll.variables.keys():
            rows[name] = (self.live[name][1], None)
        self.process, self.poll_ms, self.live = poll.process, time_ms, live
        return rows


def process_birth(process: int) -> int:
    return 1_000 + process


def reading(poll: Poll, time_ms: int) -> Reading:
    names = list(poll.variables)
    kinds = [kind for kind, _ in poll.variables.values()]
    values = [value for _, value in poll.variables.values()]
    types = [ValueType.DOUBLE if isinstance(v, float) else ValueType.INTEGER for v in values]
    cells = [double_to_cell(v) if isinstance(v, float) else int(v) for v in values]
    shape = repr((names, kinds, types)).encode()
    schema = SourceSchema(
        shape, names, [{} for _ in names], np.array(types, np.uint8), np.array(kinds, np.uint8), {}, {}
    )
    uuid = bytes(15) + bytes([poll.process + 1])
    return Reading(uuid, process_birth(poll.process), time_ms, schema, np.array(cells, np.int64))


def deliver(series: SourceSeries, poll: Poll, time_ms: int) -> dict[str, tuple[int, Value | None]]:
    """Poll, accept, and return the rows by name."""
    read = reading(poll, time_ms)
    prepared = series.prepare(read, series.place(bind_schema(read.schema, {}), time_ms))
    series.commit(prepared)
    rows = [row for polled in prepared.polled for row in polled.samples.rows()]
    assert all(time == time_ms for _, time, _, _ in rows)
    by_print = {fingerprint(d.text): d.text.partition("{")[0] for d in series.rows.descriptions}
    assert len({print_ for print_, _, _, _ in rows}) == len(rows)
    return {by_print[print_]: (birth, value) for print_, _, birth, value in rows}


NAMES = st.sampled_from(["a", "b", "c", "d"])
INTEGERS = st.integers(0, 6)
# A name keeps its type here: what a change of type does has tests of its own.
VARIABLES = st.dictionaries(NAMES, st.tuples(st.sampled_from(Kind), INTEGERS)).map(
    lambda found: {name: (kind, float(value) if name in "cd" else value) for name, (kind, value) in found.items()}
)
POLLS = st.lists(st.tuples(st.integers(0, 9), VARIABLES), max_size=12)


@settings(max_examples=300, deadline=None)
@given(POLLS)
def test_every_birth_and_end_is_as_the_reference_says(polls: list[tuple[int, dict[str, object]]]) -> None:
    series, reference = SourceSeries("s"), Reference()
    process = 0
    for i, (chance, variables) in enumerate(polls):
        process += chance == 0  # one poll in ten meets a restarted process
        poll = Poll(process, variables)  # type: ignore[arg-type]
        time_ms = 10_000 * (i + 1)
        assert deliver(series, poll, time_ms) == reference.poll(poll, time_ms)


def test_a_refused_poll_is_as_if_it_had_not_been() -> None:
    """It is prepared and not committed: the next poll compares with the last accepted one."""
    series = SourceSeries("s")
    deliver(series, Poll(0, {"a": (Kind.COUNTER, 5)}), 10_000)
    refused = reading(Poll(0, {"a": (Kind.COUNTER, 3), "b": (Kind.COUNTER, 1)}), 20_000)
    series.prepare(refused, series.place(bind_schema(refused.schema, {}), 20_000))
    rows = deliver(series, Poll(0, {"a": (Kind.COUNTER, 6), "b": (Kind.COUNTER, 2)}), 30_000)
    assert rows == {"a": (1_000, 6), "b": (10_000, 2)}


@pytest.mark.parametrize(
    ("before", "after", "new_birth"),
    [
        pytest.param(5, 4, True, id="integer falls"),
        pytest.param(5, 5, False, id="integer stays"),
        pytest.param(2**62, 2**62 - 1, True, id="beyond what a double can tell"),
        pytest.param(5.5, 5.25, True, id="double falls"),
        pytest.param(5.5, float("nan"), False, id="NaN is not below"),
        pytest.param(float("inf"), 1.0, True, id="infinity falls"),
    ],
)
def test_a_counter_that_falls_began_at_the_poll_before(before: Value, after: Value, new_birth: bool) -> None:
    series = SourceSeries("s")
    deliver(series, Poll(0, {"a": (Kind.COUNTER, before)}), 10_000)
    rows = deliver(series, Poll(0, {"a": (Kind.COUNTER, after)}), 20_000)
    assert rows["a"][0] == (10_000 if new_birth else 1_000)


def test_a_counter_that_was_nan_is_compared_with_the_last_number() -> None:
    series = SourceSeries("s")
    for i, value in enumerate((5.0, float("nan"), 4.0)):
        rows = deliver(series, Poll(0, {"a": (Kind.COUNTER, value)}), 10_000 * (i + 1))
    assert rows["a"][0] == 20_000


def test_a_birth_is_never_after_its_sample() -> None:
    """The clock of the process is ahead of the poller's."""
    series = SourceSeries("s")
    assert deliver(series, Poll(0, {"a": (Kind.COUNTER, 1)}), 500) == {"a": (500, 1)}


def test_one_process_has_one_birth_whatever_the_arrays() -> None:
    n = 1_500
    zeros = np.zeros(n, np.int64)
    known = KnownSeries(zeros, zeros, np.zeros(n, np.bool_))
    seen = PolledSeries(zeros, np.zeros(n, np.uint8), np.ones(n, np.uint8))
    assert start_times(known, seen, 7, None).tolist() == [7] * n
    assert start_times(known, seen, 7, 99).tolist() == [99] * n


def test_the_canonical_text_names_the_series() -> None:
    series = SourceSeries("s")
    deliver(series, Poll(0, {"a": (Kind.COUNTER, 1)}), 10_000)
    assert [d.text for d in series.rows.descriptions] == [canonical("a", {})]
