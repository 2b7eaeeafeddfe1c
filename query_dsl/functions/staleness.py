"""Times of newest samples: `stale`, `last_seen`, and the filters `stale` and `fresh`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from query_dsl.functions.registry import Argument
from query_dsl.functions.step import NEVER, Step, StepCall
from query_dsl.results.matrix import Matrix
from query_dsl.results.result_cells import BOOLEAN, INTEGER, Bools, Example, Ints, of_type
from query_dsl.tree.entry_table import read_only_table


def _stale(asked: StepCall) -> Matrix:
    """Return true where the newest sample is older than `age` or unknown."""
    age = asked.args["age"]
    found = asked.newest_times(age)
    old = ~found.known | (asked.grid.ends()[None, :] - found.newest > age)
    return Matrix(found.keys, asked.grid, of_type(BOOLEAN, old.astype(np.int64), np.ones(old.shape, np.bool_)))


def _last_seen(asked: StepCall) -> Matrix:
    found = asked.newest_times(None)
    return Matrix(found.keys, asked.grid, of_type(INTEGER, found.newest, found.known))


def make_age_filter(fresh: bool) -> Callable[[StepCall], Matrix]:
    """Make the filter for series whose newest sample in the range is recent (`fresh`) or old."""

    def run(asked: StepCall) -> Matrix:
        found, data = asked.child(), asked.data(("last_time",))
        times = {
            key: int(time) for key, time in zip(data.keys, _newest(data.present, data.stats["last_time"]), strict=True)
        }
        limit = asked.grid.end_ms - asked.args["age"]
        rows = np.array([(times.get(key, limit - 1) >= limit) is fresh for key in found.keys], np.bool_)
        return note_if_empty(found.take(rows), found, asked, asked.entry.name)

    return run


def note_if_empty(left: Matrix, found: Matrix, asked: StepCall, name: str) -> Matrix:
    """Add a note if a filter removed all series; return `left`."""
    if len(found) and not len(left):
        asked.context.note(f"filter {name}: none of {len(found)} series is left")
    return left


def _newest(present: Bools, times: Ints) -> list[int]:
    newest: list[int] = np.where(present, times, NEVER).max(axis=1, initial=NEVER).tolist()
    return newest


_AGE = Argument("age", "duration", "maximum age of a sample")
_GIVEN = ((1.0, None, None),)


def _filter(name: str, summary: str, stays: bool) -> Step:
    return Step(
        name=name,
        summary=summary,
        example=f'fetch(\'temperature\').filter("{name}", "5m")',
        case=Example(_GIVEN, _GIVEN[0] if stays else ()),
        case_args='"1m"',
        arguments=(_AGE,),
        family="filter",
        run=make_age_filter(name == "fresh"),
    )


FILTERS: tuple[Step, ...] = (
    _filter(
        "stale",
        "Series whose newest sample in the range is more than age before its end; of any type. Series without a sample "
        "in the range are not included: use the method .stale for them.",
        True,
    ),
    _filter("fresh", "Series whose newest sample in the range is at most age before its end; of any type.", False),
)

PRESENCE: Mapping[str, Step] = read_only_table(
    Step(
        name="stale",
        summary="true where the newest sample at or before the bucket's end is more than age before it, or none is "
        "known (BOOLEAN). Series that fit but have no sample in the range are there too. Of any type.",
        example="fetch('temperature').stale(\"5m\")",
        case=Example(_GIVEN, (0.0, 0.0, 1.0)),
        case_args='"1m"',
        arguments=(_AGE,),
        family="presence",
        run=_stale,
        fetched=True,
        unit="true or false",
    ),
    Step(
        name="last_seen",
        summary="Time of the newest sample at or before the bucket's end (INTEGER, epoch ms); missing where none is "
        "known. Series that fit but have no sample in the range are there too. Of any type.",
        example="fetch('temperature').last_seen()",
        case=Example(_GIVEN, (60_000.0, 60_000.0, 60_000.0)),
        family="presence",
        run=_last_seen,
        fetched=True,
        unit="ms since the epoch",
    ),
)
