"""Lines of StatsD and DogStatsD to aggregates, and those to columns of samples once a period.

    name:value[:value…]|type[|@rate][|#tag:value,tag]

https://docs.datadoghq.com/developers/dogstatsd/datagram_shell/ defines the lines. `aggregate` runs in the thread of a
listener, `read` in another one."""

from __future__ import annotations

import threading
from collections import Counter

from artimon.model.labels import LabelError
from artimon.model.values import STALE
from sources.dropin.series_columns import DROPPED
from sources.receive.line_body import LineFault, check_length, finite, lines_of, text_of
from sources.receive.received_columns import (
    BAD,
    ReceivedColumns,
    ReceivedSamples,
    SampleColumns,
    clean_labels,
    clean_name,
)
from sources.receive.statsd_aggregates import AGGREGATES, Aggregate
from sources.state.relabel import RelabelRules

MAX_SERIES = 100_000
"""Series of all aggregates."""
IDLE_MS = 15 * 60_000
"""Time without a value after which an aggregate ends."""
_NO_METRIC = (b"_e{", b"_sc|")
Key = tuple[bytes, bytes, bytes]


class StatsdReader(ReceivedColumns):
    """Aggregates of one listener. `_lock` guards them; `read` and `settle` are called in turn.

    What was read stays in the aggregates until `settle`: a period that the log refuses is read again with the next."""

    def __init__(self, rules: RelabelRules | None) -> None:
        super().__init__(rules)
        self._lock = threading.Lock()
        self._aggregates: dict[Key, Aggregate] = {}
        self._series = 0
        self._last_ms = 0
        self._refused: Counter[str] = Counter()
        self._example: dict[str, str] = {}

    def aggregate(self, body: bytes, now_ms: int) -> None:
        """Add lines to the aggregates; those that cannot be parsed are refused at the next `read`."""
        for _, line in lines_of(body):
            try:
                with self._lock:
                    self._aggregate_line(line, now_ms)
            except LineFault as problem:
                with self._lock:
                    self._refused[problem.reason] += 1
                    self._example.setdefault(problem.reason, str(problem))

    def _aggregate_line(self, line: bytes, now_ms: int) -> None:
        """Add one line to the aggregates. Raises LineFault."""
        check_length(line)
        if line.startswith(_NO_METRIC):
            raise LineFault("events and service checks are not supported", "not supported")
        head, *parts = line.split(b"|")
        name, colon, values = head.partition(b":")
        if not colon or not parts:
            raise LineFault(f"want NAME:VALUE|TYPE, not {line[:60]!r}")
        rate, tags = 1.0, b""
        for part in parts[1:]:
            if part.startswith(b"@"):
                rate = finite(part[1:])
            elif part.startswith(b"#"):
                tags = part[1:]
            elif part.startswith(b"T"):
                raise LineFault("values with a time of their own are not supported", "not supported")
        if not 0 < rate <= 1:
            raise LineFault(f"a rate of {rate!r}: want above 0, at most 1")
        texts = values.split(b":")
        if parts[0] != b"s":
            for value in texts:
                finite(value)
        aggregate = self._aggregate((name, parts[0], tags), now_ms)
        for value in texts:
            aggregate.add(value, rate)
        aggregate.heard_ms = now_ms

    def _aggregate(self, key: Key, now_ms: int) -> Aggregate:
        """Return an aggregate, new or not. Raises LineFault."""
        found = self._aggregates.get(key)
        if found is None:
            make = AGGREGATES.get(key[1])
            if make is None:
                raise LineFault(f"no type {key[1][:20]!r}: there are {', '.join(one.decode() for one in AGGREGATES)}")
            found = make(*_identity(key[0], key[2]), self._last_ms or now_ms)
            if self._series + found.series > MAX_SERIES:
                raise LineFault(f"more than {MAX_SERIES:,} series", "too many series")
            self._series += found.series
            self._aggregates[key] = found
        return found

    # --- once a period

    def read(self, body: bytes, form: str) -> ReceivedSamples:  # noqa: ARG002
        """Return the samples of the period that ends now, the time in `form`. Raises BodyError."""
        made = SampleColumns()
        with self._lock:
            now_ms = self._last_ms = max(int(form), self._last_ms + 1)
            aggregates = list(self._aggregates.values())
            read = [(one, one.read(), now_ms - one.heard_ms >= IDLE_MS) for one in aggregates]
            for reason, count in self._refused.items():
                made.rejected.add(reason, self._example[reason], count)
            self._refused.clear()
            self._example.clear()
        for one, values, idle in read:
            one.is_over = idle
            try:
                self._add_values(one, values, now_ms, made)
            except LabelError as problem:
                made.rejected.add(BAD, str(problem))
        return made.finish(self.metadata())

    def _add_values(
        self, one: Aggregate, values: list[tuple[str, str, float]], now_ms: int, made: SampleColumns
    ) -> None:
        self.take_family(one.name, one.kind, "", one.unit)
        for suffix, bound, value in values:
            key = (one.name, *one.labels.items(), suffix, bound)
            at = self.known(key)
            if at is None:
                labels = {**one.labels, "le": bound} if bound else one.labels
                size = len(one.name) + sum(len(k) + len(v) for k, v in labels.items())
                at = self.add(key, size, one.name + suffix, labels)
            if at == DROPPED:
                continue
            if one.is_over:
                made.add(at, now_ms, STALE, 1)
            else:
                made.add(at, now_ms, value, 1, 0 if one.kind == "gauge" else one.begun_ms, one.is_delta)

    def settle(self) -> None:
        """Remove what was read from the aggregates: the log has it."""
        with self._lock:
            for key, one in list(self._aggregates.items()):
                one.settle()
                if one.is_over and not one.is_new:
                    del self._aggregates[key]
                    self._series -= one.series


def _identity(name: bytes, tags: bytes) -> tuple[str, dict[str, str]]:
    """Return name and labels; tags may follow the name as `;tag=value` or `,tag=value` too. Raises LineFault."""
    divider = ";" if b";" in name else ","
    base, *named = text_of(name).split(divider)
    pairs = [one.partition("=")[::2] for one in named]
    pairs += [one.partition(":")[::2] for one in text_of(tags).split(",") if one]
    if not base:
        raise LineFault("a line without a name")
    return clean_name(base), clean_labels((tag, value or "true") for tag, value in pairs)
