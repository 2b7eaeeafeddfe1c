"""Flume's figures beside ours: one sample an event, and our batches as events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
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
    """The best of all runs by the number of connections: what came into Flume's files a second, and what had only come
    into its channel. `events` with one sample each; `mb_s` with our batches as events."""

    events: dict[int, tuple[float, float]] = field(default_factory=dict)
    mb_s: dict[int, tuple[float, float]] = field(default_factory=dict)


def of_all(figures: dict[int, tuple[float, float]]) -> float:
    """The best into its files; 0 if nothing was measured."""
    return max((delivered for delivered, _ in figures.values()), default=0.0)


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
    """`peer.flume.*`; the first round of each kind warms the JVM and is not counted. Raises PeerFailed."""
    best = Best()
    leases = PortLeases()
    port = leases.lease(27_900)
    try:
        with flume.serving(folder / "flume", port, SINKS) as sink:
            for number in range(rounds + 1):
                for connections in CONNECTIONS:
                    load = flume.serialise(single_samples(events), 1_000, connections)
                    result = flume.send(load, port, sink)
                    if number > 0:
                        _note(best.events, connections, load.events, result)
            for number in range(rounds + 1):
                for connections in CONNECTIONS:
                    load = flume.serialise(map(prepared.__getitem__, range(len(prepared))), 100, connections)
                    result = flume.send(load, port, sink)
                    if number > 0:
                        _note(best.mb_s, connections, load.bytes / 1e6, result)
    finally:
        leases.release()
    for connections in CONNECTIONS:
        rate, accepted = best.events[connections]
        name = f"peer.flume.transport.encoded@{connections}"
        emit(name, rate, f"samples/s into its files, {accepted:,.0f} into its channel")
        rate, accepted = best.mb_s[connections]
        emit(f"peer.flume.transport.bytes@{connections}", rate, f"MB/s into its files, {accepted:.0f} into its channel")
    return best


def _note(best: dict[int, tuple[float, float]], connections: int, count: float, result: flume.Result) -> None:
    found = count / result.delivered_s, count / result.accepted_s
    best[connections] = max(best.get(connections, found), found)
