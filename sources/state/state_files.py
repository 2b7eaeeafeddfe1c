"""State of a source as two files: docs/sources.md "State".

`<key>.series` (JSON): name, place of the process, and text, kind, help, unit and first sight of every series; written
when they change. `<key>.values`: one line of JSON, then a fixed-width row per series; written after accepted polls.
Both are replaced as a whole and end with a checksum. A damaged `.series` is quarantined and the source starts without
state; damaged `.values` are ignored.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import xxhash

from artimon.model.values import Kind, ValueType
from sources.base.source_errors import SourceStateError
from sources.state.past_processes import FinalSnapshots
from sources.state.series_memory import SourceSeries
from sources.state.series_rows import STATE_DTYPE, SeriesDescription

T = TypeVar("T")
VERSION = 1
SERIES, VALUES = ".series", ".values"
_SUM_BYTES = 8


def key_of(source: str) -> str:
    """Return the file name of a source without suffix."""
    return str(xxhash.xxh3_128_hexdigest(source.encode()))


def encode_descriptions(series: SourceSeries) -> bytes:
    """Encode the `.series` file: name, meta, final snapshots and descriptions."""
    rows = series.rows
    prints = rows.state["fingerprint"].tolist()
    described = [
        [p, d.text, int(d.kind), d.help, d.unit, d.first_seen_ms]
        for p, d in zip(prints, rows.descriptions, strict=True)
    ]
    finals = series.finals.to_json()
    content = {"version": VERSION, "source": series.name, "meta": series.meta, "finals": finals, "series": described}
    return _add_checksum(json.dumps(content, ensure_ascii=False).encode())


def encode_values(series: SourceSeries) -> bytes:
    """Encode the `.values` file: the last poll, and the last number, birth, time, type and liveness of each series."""
    head = {
        "version": VERSION,
        "uuid": series.uuid.hex(),
        "uid": series.uid,
        "process_ms": series.process_ms,
        "last_poll_ms": series.last_poll_ms,
        "whole_ms": series.whole_ms,
    }
    return _add_checksum(json.dumps(head).encode() + b"\n" + series.rows.state.tobytes())


def decode_state(described: bytes, values: bytes | None, max_series: int) -> SourceSeries:
    """Decode a source; without `values` every series counts as not live. Raises SourceStateError if damaged."""
    try:
        content = json.loads(_verify_checksum(described))
        _expect_version(content)
        series = SourceSeries(content["source"], max_series)
        series.meta = content["meta"]
        if "finals" in content:
            series.finals = FinalSnapshots.from_json(content["finals"])
        for print_, text, kind, help_, unit, first_seen_ms in content["series"]:
            description = SeriesDescription(text, Kind(kind), help_, unit, first_seen_ms)
            series.rows.add(print_, ValueType.INTEGER, description)
        if values is not None:
            _restore(series, _verify_checksum(values))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceStateError(f"{type(error).__name__}: {error}") from error
    return series


def _restore(series: SourceSeries, data: bytes) -> None:
    head, _, body = data.partition(b"\n")
    content = json.loads(head)
    _expect_version(content)
    stored = np.frombuffer(body, STATE_DTYPE)
    state = series.rows.state
    if np.array_equal(stored["fingerprint"], state["fingerprint"]):
        state[:] = stored
    else:
        for one in stored:
            row = series.rows.by_fingerprint.get(int(one["fingerprint"]))
            if row is not None:
                state[row] = one
    series.uuid, series.uid = bytes.fromhex(content["uuid"]), content.get("uid")
    series.process_ms, series.last_poll_ms = int(content["process_ms"]), int(content["last_poll_ms"])
    series.whole_ms = int(content.get("whole_ms", 0))


def read_state(path: Path, max_series: int) -> SourceSeries:
    """Read the source whose `.series` file is at `path`. Raises SourceStateError if it is damaged; ignores damaged
    values."""
    values = path.with_suffix(VALUES)
    try:
        described = path.read_bytes()
    except OSError as error:
        raise SourceStateError(f"{path}: {error}") from error
    try:
        return decode_state(described, values.read_bytes(), max_series)
    except (OSError, SourceStateError):
        return decode_state(described, None, max_series)


def replace_file(path: Path, data: bytes, sync: bool = False) -> None:
    """Replace the file at `path` by rename; with `sync`, fsync the new one first."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)


async def run_in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Run `work` in a thread and return its result. Cancellation waits until it has ended, so that a file is written
    completely and never by two writers."""
    task = asyncio.create_task(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _expect_version(content: Any) -> None:
    if content["version"] != VERSION:
        raise ValueError(f"version {content['version']}: this program reads version {VERSION}")


def _add_checksum(data: bytes) -> bytes:
    return data + xxhash.xxh3_64_digest(data)


def _verify_checksum(data: bytes) -> bytes:
    body, check = data[:-_SUM_BYTES], data[-_SUM_BYTES:]
    if xxhash.xxh3_64_digest(body) != check:
        raise SourceStateError("checksum mismatch")
    return body
