"""Plaintext of Graphite to columns of samples: `path[;tag=value…] value [time]`, a line each. Runs in a thread.

https://graphite.readthedocs.io/en/stable/feeding-carbon.html defines the lines, .../tags.html the tags. Rules take
paths apart."""

from __future__ import annotations

import math

from artimon.model.labels import LabelError
from sources.dropin.series_columns import DROPPED
from sources.receive.line_body import LineFault, check_length, decimal, finite, lines_of, text_of
from sources.receive.received_columns import (
    BAD,
    ReceivedColumns,
    ReceivedSamples,
    SampleColumns,
    clean_labels,
    clean_name,
)

_NOW = frozenset((b"-1", b"N"))


class GraphiteReader(ReceivedColumns):
    """Reads the lines of one sender. The form of a body is the time of its arrival in ms."""

    def read(self, body: bytes, form: str) -> ReceivedSamples:
        made, now_ms = SampleColumns(), int(form)
        for number, line in lines_of(body):
            try:
                self._add(line, number, now_ms, made)
            except LineFault as problem:
                made.rejected.add(problem.reason, str(problem), line=number)
            except LabelError as problem:
                made.rejected.add(BAD, str(problem), line=number)
        return made.finish(self.metadata())

    def _add(self, line: bytes, number: int, now_ms: int, made: SampleColumns) -> None:
        """Add the sample of one line. Raises LineFault, LabelError."""
        check_length(line)
        parts = line.split()
        if len(parts) not in (2, 3):
            raise LineFault("want PATH VALUE TIME")
        value = decimal(parts[1])
        if math.isnan(value):
            raise LineFault("the value is not a number")
        time_ms = now_ms if len(parts) == 2 or parts[2] in _NOW else round(finite(parts[2]) * 1000)
        at = self.known(parts[0])
        if at is None:
            name, *tags = text_of(parts[0]).split(";")
            pairs = [tag.partition("=")[::2] for tag in tags]
            at = self.add(parts[0], len(parts[0]), clean_name(name), {"__path": name, **clean_labels(pairs)})
        if at != DROPPED:
            made.add(at, time_ms, value, number)
