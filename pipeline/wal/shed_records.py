"""Shed records: accepted batches that were given up to make room, where the operator chose `shed = "oldest"`.

A shed record is an ordinary batch of samples: numbered, fsynced before anything is deleted, sent, stored and acked, so
that the loss can be queried. It holds two variables of the source `artimon.agent/<agent>/shed`:

- `artimon.agent.shed{agent,source,state}`, INTEGER, at the end of each minute: samples with a value that were given up.
  `state`: `unsent`, or `sent` if Kafka had confirmed them and the table had not.
- `artimon.agent.shed.batches{agent}`, STRING: their identities, `from:until,from:until epoch/lane/agent` for each lane.

Recovery reads the second: after a crash between the record and the deletion, the record is kept and no batch that it
reports as lost is delivered. A record covers only its own batches, so a shed may stop halfway.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import xxhash

from artimon.model.batch import (
    MAX_BLOCK_SERIES,
    BatchError,
    BatchHeader,
    BatchKind,
    PollResult,
    Samples,
    SeriesBlock,
    SeriesInfo,
)
from artimon.model.batch_codec import decode_samples, decode_series
from artimon.model.fingerprint import fingerprint
from artimon.model.grid import bucket_ends
from artimon.model.labels import canonical
from artimon.model.ranges import LaneId, LaneRanges
from artimon.model.values import Kind, Value, ValueType

SHED_VARIABLE = "artimon.agent.shed"
SHED_BATCHES_VARIABLE = "artimon.agent.shed.batches"
_SUFFIX = "/shed"
MAX_ROWS = 900
"""Most rows of one record; its series fit into one announcement."""
_MAX_TEXT = 900
"""Most bytes of ranges in one value."""
MINUTE_MS = 60_000

Minutes = tuple[tuple[int, int], ...]
_Row = tuple[int, int, int, Value | None]
"""Fingerprint, time, start, value."""


def minutes_of(samples: Samples) -> Minutes:
    """(end of the minute in ms, samples with a value in it), ascending."""
    valued = samples.time_ms[samples.type != ValueType.ENDED]
    if not len(valued):
        return ()
    first, last = int(valued.min()), int(valued.max())
    if -(-first // MINUTE_MS) == -(-last // MINUTE_MS):  # samples of one poll nearly always belong to one minute
        return ((-(-first // MINUTE_MS) * MINUTE_MS, len(valued)),)
    minutes, counts = np.unique(bucket_ends(valued, MINUTE_MS), return_counts=True)
    return tuple(zip(minutes.tolist(), counts.tolist(), strict=True))


def shed_source(agent: str) -> str:
    """Return the source name of the agent's shed records."""
    return f"artimon.agent/{agent}{_SUFFIX}"


@dataclass(slots=True)
class _ShedRecord:
    lanes: LaneRanges = field(default_factory=LaneRanges)
    lost: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """Counts of samples by source, state and end of the minute."""
    newest_ms: int = 0

    @property
    def rows(self) -> int:
        return len(self.lost) + sum(1 + len(self.lanes[lane]) // 20 for lane in self.lanes.lanes())


def shed_records(agent: str, batches: Iterable[tuple[BatchHeader, bytes, bool]]) -> Iterator[PollResult]:
    """Yield the shed records, with their announcements, for given-up batches (header, bytes, True if Kafka had it)."""
    record = _ShedRecord()
    for header, payload, sent in batches:
        if header.kind == BatchKind.SERIES:  # announced again within a day
            continue
        record.lanes.add(header.id.lane_id, header.id.sequence)
        record.newest_ms = max(record.newest_ms, header.poll_ms)
        if header.source == shed_source(header.id.agent):  # its content is carried over, see `merge_shed_records`
            continue
        for minute, samples in _minutes(header, payload):
            record.lost[header.source, "sent" if sent else "unsent", minute] += samples
        if record.rows >= MAX_ROWS:
            yield _polled(agent, record)
            record = _ShedRecord()
    if record.rows:
        yield _polled(agent, record)


def merge_shed_records(agent: str, batches: Iterable[tuple[BatchHeader, bytes, bool]]) -> Iterator[PollResult]:
    """Merge shed records that are given up themselves, with the announcements of their series, so that a reported loss
    is never forgotten.

    The identities of a record that Kafka has are merged too: Kafka may lose its log before the table has read it, and
    an identity that is named twice does no harm. Its counts are left out, because they would count twice."""
    source, batches_text = shed_source(agent), canonical(SHED_BATCHES_VARIABLE, {"agent": agent})
    lanes, counts, infos, newest_ms = LaneRanges(), list[_Row](), dict[str, SeriesInfo](), 0
    for header, payload, sent in batches:
        if header.source != source:
            continue
        newest_ms = max(newest_ms, header.poll_ms)
        if header.kind == BatchKind.SERIES:
            if not sent:
                infos |= {info.text: info for info in decode_series(header, payload).series}
            continue
        lanes.update(shed_batches(header, payload))
        if not sent:
            rows = decode_samples(header, payload).rows()
            counts += [row for row in rows if row[0] != fingerprint(batches_text)]
    rows = counts + _identity_rows(batches_text, lanes, newest_ms, newest_ms)
    if rows:
        infos.setdefault(batches_text, _identity_info(batches_text, newest_ms))
    elif not infos:
        return
    texts = sorted(infos)
    parts = [
        tuple(infos[text] for text in texts[at : at + MAX_BLOCK_SERIES])
        for at in range(0, len(texts), MAX_BLOCK_SERIES)
    ]
    blocks = tuple(SeriesBlock(source, _block(part), newest_ms, part) for part in parts)
    yield PollResult(source, bytes(16), 0, newest_ms, Samples.of(rows), blocks=blocks)


def _identity_info(text: str, first_ms: int) -> SeriesInfo:
    return SeriesInfo(text, ValueType.STRING, Kind.UNKNOWN, "Batches given up to make room", "", first_ms)


def _identity_rows(text: str, lanes: LaneRanges, newest_ms: int, first_ms: int) -> list[_Row]:
    """Return one row for each text of ranges, a millisecond apart."""
    return [(fingerprint(text), newest_ms + n, first_ms, said) for n, said in enumerate(_texts(lanes))]


def _minutes(header: BatchHeader, payload: bytes) -> Minutes:
    if header.kind == BatchKind.SAMPLES:
        with suppress(BatchError):  # accepted by an older program: use the counts of its header
            return minutes_of(decode_samples(header, payload))
    return ((-(-header.poll_ms // MINUTE_MS) * MINUTE_MS, header.rows),)


def shed_batches(header: BatchHeader, payload: bytes) -> LaneRanges:
    """Return the batches that a shed record gives up; empty if the batch is not a shed record. Raises BatchError."""
    found = LaneRanges()
    if (
        not header.source.endswith(_SUFFIX)
        or header.kind != BatchKind.SAMPLES
        or header.source != shed_source(header.id.agent)
    ):
        return found
    for text in decode_samples(header, payload).strings:
        ranges, lane = text.split(" ", 1)
        try:
            for part in ranges.split(","):
                first, end = part.split(":")
                found.add_range(LaneId.parse(lane), int(first), int(end))
        except ValueError as error:
            raise BatchError(f"shed record: {text[:200]!r}: {error}") from error
    return found


def _polled(agent: str, record: _ShedRecord) -> PollResult:
    infos: dict[str, SeriesInfo] = {}
    rows: list[_Row] = []
    first = min((minute for _, _, minute in record.lost), default=record.newest_ms)
    for (source, state, minute), lost in sorted(record.lost.items()):
        text = canonical(SHED_VARIABLE, {"agent": agent, "source": source, "state": state})
        infos[text] = SeriesInfo(text, ValueType.INTEGER, Kind.GAUGE, "Samples given up to make room", "", minute)
        rows.append((fingerprint(text), minute, first, lost))
    text = canonical(SHED_BATCHES_VARIABLE, {"agent": agent})
    infos[text] = _identity_info(text, first)
    rows += _identity_rows(text, record.lanes, record.newest_ms, first)
    source = shed_source(agent)
    series = tuple(infos[text] for text in sorted(infos))
    block = SeriesBlock(source, _block(series), record.newest_ms, series)
    return PollResult(source, bytes(16), first, record.newest_ms, Samples.of(rows), blocks=(block,))


def _texts(lanes: LaneRanges) -> Iterator[str]:
    by_lane: dict[LaneId, list[str]] = defaultdict(list)
    for lane in lanes.lanes():
        size = 0
        for first, end in lanes[lane]:
            part = f"{first}:{end}"
            if size + len(part) > _MAX_TEXT:
                yield f"{','.join(by_lane.pop(lane))} {lane}"
                size = 0
            by_lane[lane].append(part)
            size += len(part) + 1
    for lane, parts in by_lane.items():
        yield f"{','.join(parts)} {lane}"


def _block(series: Sequence[SeriesInfo]) -> int:
    """Block number that depends only on the series, so that repeated announcements have the same one."""
    return xxhash.xxh32_intdigest("\n".join(info.text for info in series).encode())
