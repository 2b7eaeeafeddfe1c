"""Flume's figures beside ours: from polled samples, with prepared batches, with one sample an event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from artimon.stack.port_leases import PortLeases
from benchmarks.carrying.bodies import Bodies
from benchmarks.common import emit
from benchmarks.peers import flume
from benchmarks.peers.flume_polled import send_polled

POLLED_AGENTS = (1, 4)
"""Numbers of agents, or connections, in the runs from polled values."""
POLLED_PART = 4
"""Divisor of the number of batches in the runs from polled values, for Flume and for us."""
SINKS = 4
"""Sinks that share a channel; a single one would limit the rate."""
_SAMPLE = np.dtype([("series", "u8"), ("time", "i8"), ("birth", "i8"), ("value", "i8"), ("type", "u1")])


@dataclass(slots=True)
class Best:
    """Best rates by the number of connections: into Flume's files, and into its channel. `events`: one sample each;
    `mb_s`: our batches as events; `polled`: samples that are encoded as our batches while they are sent."""

    polled: dict[int, tuple[float, float]] = field(default_factory=dict)
    events: dict[int, tuple[float, float]] = field(default_factory=dict)
    mb_s: dict[int, tuple[float, float]] = field(default_factory=dict)


def of_all(figures: dict[int, tuple[float, float]]) -> float:
    """Return the best rate into the files; 0 if nothing was measured."""
    return max((delivered for delivered, _ in figures.values()), default=0.0)


def single_samples(count: int) -> Iterator[bytes]:
    """Yield samples of 33 bytes each, the shortest form: fingerprint, time, birth, value, type."""
    generator = np.random.default_rng(3)
    rows = np.zeros(count, _SAMPLE)
    rows["series"] = generator.integers(0, 2**63, count)
    rows["value"] = generator.integers(0, 3_000, count)
    rows["time"] = rows["birth"] = 1_700_000_000_000
    raw = rows.tobytes()
    return (raw[at : at + _SAMPLE.itemsize] for at in range(0, len(raw), _SAMPLE.itemsize))


def measure(folder: Path, path: Path, prepared: Bodies, events: int, rounds: int, connections: Sequence[int]) -> Best:
    """Measure `peer.flume.*`; the first round of each kind warms up the JVM and is not counted. Raises PeerFailed."""
    best = Best()
    leases = PortLeases()
    port = leases.lease(27_900)
    try:
        with flume.serving(folder / "flume", port, SINKS) as sink:
            for number in range(rounds + 1):
                for count in POLLED_AGENTS:
                    polled, samples = send_polled(path, count, count * POLLED_PART, port, sink)
                    if number > 0:
                        _note(best.polled, count, samples, polled)
                for count in connections:
                    batches = flume.serialise(map(prepared.__getitem__, range(len(prepared))), 100, count)
                    carried = flume.send(batches, port, sink)
                    singles = flume.serialise(single_samples(events), 1_000, count)
                    single = flume.send(singles, port, sink)
                    if number > 0:
                        _note(best.mb_s, count, batches.bytes / 1e6, carried)
                        _note(best.events, count, singles.events, single)
    finally:
        leases.release()
    _print(best)
    return best


def polled_line(agents: int) -> str:
    """Return the name of the line for a number of agents or connections."""
    return "transport.single" if agents == 1 else f"transport.polled@{agents}"


def _print(best: Best) -> None:
    for count, (rate, accepted) in best.polled.items():
        unit = f"samples/s from polled values into its files, {accepted:,.0f} into its channel, {count} connections"
        emit(f"peer.flume.{polled_line(count)}", rate, unit)
    for count, (rate, accepted) in best.mb_s.items():
        unit = f"MB/s into its files, {accepted:.0f} into its channel, {count} connections"
        emit(f"peer.flume.transport.bytes@{count}", rate, unit)
    for count, (rate, accepted) in best.events.items():
        unit = f"samples/s into its files, {accepted:,.0f} into its channel, one sample an event, {count} connections"
        emit(f"peer.flume.transport.encoded@{count}", rate, unit)


def _note(best: dict[int, tuple[float, float]], connections: int, count: float, result: flume.Result) -> None:
    found = count / result.delivered_s, count / result.accepted_s
    best[connections] = max(best.get(connections, found), found)
