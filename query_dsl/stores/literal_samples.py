"""Samples in Python lists, checked and converted for `offline`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeGuard

from artimon.model.fingerprint import fingerprint
from artimon.model.labels import canonical
from artimon.model.series_table import NAME, Series
from artimon.model.values import INT64_MAX, INT64_MIN, Kind, Value, ValueType, type_of
from query_dsl.tree.literals import checked_literal, to_python_scalar
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.selector import parse_selector
from query_dsl.tree.times import parse_instant

Time = int | float | str | datetime
"""Epoch milliseconds, ISO 8601, or a datetime."""
SampleList = Sequence[tuple[Time, Value | None]]
MAX_SAMPLES = 50_000_000
UNKNOWN_START_MS = -(2**45)
"""Start time of a count that began at an unknown time: before all samples, so that no window finds it."""
Sample = tuple[int, int, ValueType, Value]


@dataclass(frozen=True, slots=True)
class LiteralSeries:
    """One series: samples of (time ms, birth ms, type, value); type ENDED marks the end of the series."""

    series: Series
    samples: tuple[Sample, ...]


def parse_series(
    text: str, given: Iterable[tuple[Time, Value | None]], kind: object, births: object, ended: object
) -> LiteralSeries:
    """Check one series. Raises QueryError that names the series and the sample, and says how to write it."""
    name, labels = _named(text)
    samples: list[Sample] = []
    points = [_point(text, number, point) for number, point in enumerate(given)]
    born = _start_times(text, births, len(points))
    doubles = any(isinstance(value, float) for _, value in points)
    for number, (time, value) in enumerate(points):
        if doubles and type(value) is int:  # 46.5, 23, 42: a list of numbers, not of two types
            value = float(value)
        if value is None:
            samples.append((time, 0, ValueType.ENDED, 0))
        else:
            samples.append((time, born[number], type_of(value), value))
    if ended is not None:
        samples.append((_time(text, ended, "ended"), 0, ValueType.ENDED, 0))
    first = next((type_ for _, _, type_, _ in sorted(samples, key=lambda s: s[0]) if type_ != ValueType.ENDED), None)
    about = Series(_fingerprint(name, labels), name, labels, first or ValueType.DOUBLE, _kind(text, kind))
    if about.kind == Kind.COUNTER and not _one_per_sample(births):
        samples = _restarted_at_falls(samples)
    return LiteralSeries(about, tuple(samples))


def _restarted_at_falls(samples: list[Sample]) -> list[Sample]:
    """Return the samples by time. After a fall the count began anew at the sample before it, as in drop-in files."""
    made: list[Sample] = []
    before: Sample | None = None
    since = UNKNOWN_START_MS
    for sample in sorted(samples, key=lambda one: one[0]):
        time, birth, kind, value = sample
        if kind in (ValueType.INTEGER, ValueType.DOUBLE):
            if before is not None and value < before[3]:  # type: ignore[operator]  # both are numbers
                since = before[0]
            before = sample
        made.append((time, birth if kind == ValueType.ENDED else max(since, birth), kind, value))
    return made


def _fingerprint(name: str, labels: dict[str, str]) -> int:
    try:
        return fingerprint(canonical(name, labels))
    except ValueError as problem:  # too many labels, or too long
        raise QueryError(f"series {name:.80}: {problem}") from None


def _named(text: object) -> tuple[str, dict[str, str]]:
    if not isinstance(text, str):
        raise QueryError(f"the name of a series is a text such as 'temp{{rack=\"r1\"}}', not {text!r:.80}")
    matchers = parse_selector(text).matchers
    wrong = [matcher for matcher in matchers if matcher.op != "="]
    labels = {matcher.label: matcher.value for matcher in matchers if matcher.value}
    name = labels.pop(NAME, "")
    if wrong or not name or len({matcher.label for matcher in matchers}) < len(matchers):
        raise QueryError(f"{text!r:.200} is not a single series: write a name, and each label once with =")
    return name, labels


def _point(text: str, number: int, point: object) -> tuple[int, Value | None]:
    where = f"sample {number} of {text}"
    if isinstance(point, str) or not isinstance(point, Sequence) or len(point) != 2:
        raise QueryError(f"{where} is {point!r:.80}: write (time, value)")
    time, value = map(to_python_scalar, point)
    if value is not None and not isinstance(value, bool | int | float | str):
        raise QueryError(
            f"{where} has the value {value!r:.80}: use a number, a text, True or False, or None where the series ends"
        )
    if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        raise QueryError(f"{where}: {value!r:.40} is not a 64-bit integer: write it as a float")
    return _time(text, time, where), checked_literal(value, where)


def _time(text: str, time: object, where: str) -> int:
    if isinstance(time, float) and time.is_integer():
        time = int(time)
    instant = parse_instant(time, where if text in where else f"{text}: {where}")
    if instant.relative:
        raise QueryError(f"{where}: {time!r:.80} has no fixed time: use epoch milliseconds or ISO 8601")
    return instant.ms


def _start_times(text: str, births: object, n: int) -> list[int]:
    """Return one start time per sample. 0, and none at all, is an unknown time."""
    if births is None:
        return [UNKNOWN_START_MS] * n
    if not _one_per_sample(births):
        return [_time(text, births, "births") or UNKNOWN_START_MS] * n
    if len(births) != n:
        raise QueryError(f"births of {text}: {len(births)} for {n} samples; give one time, or one a sample")
    return [_time(text, birth, "births") or UNKNOWN_START_MS for birth in births]


def _one_per_sample(births: object) -> TypeGuard[Sequence[object]]:
    return isinstance(births, Sequence) and not isinstance(births, str)


def _kind(text: str, kind: object) -> Kind:
    if kind is None:
        return Kind.UNKNOWN
    if isinstance(kind, Kind):
        return kind
    if isinstance(kind, str) and kind.upper() in Kind.__members__:
        return Kind[kind.upper()]
    raise QueryError(f"the kind of {text} is {kind!r:.40}: use counter, gauge or unknown")


def parse_all(
    given: object,
    kinds: Mapping[str, object] | None,
    births: Mapping[str, object] | None,
    ended: Mapping[str, object] | None,
) -> list[LiteralSeries]:
    """Check every series, in order. Raises QueryError for a bad series, a repeated one, or too many samples."""
    if not isinstance(given, Mapping):
        raise QueryError(f"offline takes a dict of series to samples, not {type(given).__name__}")
    told = {"kinds": kinds or {}, "births": births or {}, "ended": ended or {}}
    for what, of in told.items():
        for text in of:
            if text not in given:
                raise QueryError(f"{what} names {text!r:.200}, which is not one of the series")
    found = [
        parse_series(text, samples, *(told[what].get(text) for what in ("kinds", "births", "ended")))
        for text, samples in given.items()
    ]
    seen: dict[int, str] = {}
    for text, one in zip(given, found, strict=True):
        other = seen.setdefault(one.series.fingerprint, text)
        if other != text:
            raise QueryError(f"{other!r:.200} and {text!r:.200} are the same series: give it once")
    total = sum(len(one.samples) for one in found)
    if total > MAX_SAMPLES:
        raise QueryError(f"{total:,} samples are more than lists can hold well: use at most {MAX_SAMPLES:,}")
    return found
