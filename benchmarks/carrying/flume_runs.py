"""Flume's figures beside ours: one sample an event, and our batches as events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from artimon.stack.ports import PortLeases
from benchmarks.carrying.bodies import Bodies
from benchmarks.common import emit
from benchmarks.peers import flume

CONNECTIONS = (1, 4)
SINKS = 4
"""More than one share a channel: with one the sink is what limits."""
_SAMPLE = np.dtype([("series", "u8"), ("time", "i8"), ("birth", "i8"), ("value", "i8"), ("type", "u1")])


@dataclass(slots=True)
class Best:
    """The best of all runs: events a second with one sample each, MB a second with batches; `accepted`: into Flume's
    channel only."""

    events: float = 0.0
    mb_s: float = 0.0
    accepted_events: float = 0.0
    accepted_mb_s: float = 0.0


def single_samples(count: int) -> Iterator[bytes]:
    """Samples of 33 bytes each, the shortest form: fingerprint, time, birth, value, type."""
    generator = np.random.default_rng(3)
    rows = np.zeros(count, _SAMPLE)
    rows["series"] = generator.integers(0, 2**63, count)
    rows["value"] = generator.integers(0, 3_000, count)
    rows["time"] = rows["birth"] = 1_700_000_000_000
    raw = rows.tobytes()
    return (raw[at : at + _SAMPLE.itemsize] for at in range(0, len(raw), _SAMPLE.itemsize))


def measure(folder: Path, prepared: Bodies, events: int, rounds: int) -> Best:
    """`transport.flume.*`; the first round of each kind warms the JVM and is not counted. Raises PeerFailed."""
    best = Best()
    leases = PortLeases()
    port = leases.lease(27_900)
    try:
        with flume.serving(folder / "flume", port, SINKS) as sink:
            for number in range(rounds + 1):
                for connections in CONNECTIONS:
                    load = flume.serialise(single_samples(events), 1_000, connections)
                    _note(best, load, flume.send(load, port, sink), number > 0, False, connections)
            for number in range(rounds + 1):
                for connections in CONNECTIONS:
                    load = flume.serialise(map(prepared.__getitem__, range(len(prepared))), 100, connections)
                    _note(best, load, flume.send(load, port, sink), number > 0, True, connections)
    finally:
        leases.release()
    return best


def _note(best: Best, load: flume.Load, result: flume.Result, counts: bool, batches: bool, connections: int) -> None:
    if not counts:
        return
    if batches:
        mb_s, accepted = load.bytes / 1e6 / result.delivered_s, load.bytes / 1e6 / result.accepted_s
        best.mb_s, best.accepted_mb_s = max(best.mb_s, mb_s), max(best.accepted_mb_s, accepted)
        emit(f"transport.flume.bytes@{connections}", mb_s, f"MB/s into its files, {accepted:.0f} into its channel")
        return
    rate, accepted = load.events / result.delivered_s, load.events / result.accepted_s
    best.events, best.accepted_events = max(best.events, rate), max(best.accepted_events, accepted)
    emit(f"transport.flume@{connections}", rate, f"samples/s into its files, {accepted:,.0f} into its channel")
