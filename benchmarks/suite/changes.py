"""Figures with a changed method of measurement: the old figure, the old and the new method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """Old figure, from the page of COMMIT. `before`: a value, or with `ratio` a ratio to the peer."""

    before: float
    old: str
    new: str
    ratio: bool = False


COMMIT = "d1bee75"
MEASURED = "November 2026, another machine of two cores (AMD EPYC), several runs and commits"
"""Date and machine of the figures of COMMIT."""
_SPREAD, _BURST = "polls spread evenly over the minute", "polls at the phases of the product, in the first 10 s"
CHANGES: Mapping[str, Change] = {
    "lag.hdfs.p50": Change(19.7, _SPREAD, _BURST),
    "lag.hdfs.p99": Change(34.9, _SPREAD, _BURST),
    "lag.hdfs.max": Change(37.8, _SPREAD, _BURST),
    "lag.buckets.p50": Change(1.7, _SPREAD, _BURST),
    "lag.buckets.p99": Change(3.4, _SPREAD, _BURST),
    "lag.buckets.max": Change(3.8, _SPREAD, _BURST),
    "transport.backlog.hdfs": Change(181, f"60 minutes; live {_SPREAD}", f"minutes as in the line; live {_BURST}"),
    "transport.backlog.buckets": Change(147, f"60 minutes; live {_SPREAD}", f"minutes as in the line; live {_BURST}"),
    "transport.backlog.live.p99": Change(5.3, _SPREAD, _BURST),
    "transport.single": Change(
        3_420_000, "without a peer", "beside Flume with equal batches, encoding and connections"
    ),
    "transport.encoded": Change(184, "first figure, one sample an event", "a variant after the equal ones", True),
    "transport.bytes": Change(0.81, "Flume with 1 and 4 connections", "Flume with as many connections as agents", True),
    "query.users": Change(14, "200 texts in turn, nothing fed, clock at rest", "no text twice, fed, clock running"),
    "query.join_volumes": Change(
        1.45,
        "newest values compared, sizes of answers not told",
        "every value compared, sizes told; `@reduced`: equal content",
        True,
    ),
    "query.topk": Change(19, "newest values compared", "compared at every step", True),
    "varstore.restart": Change(5.2, "40 minutes of samples", "every bucket of every level filled"),
    "varstore.snapshot.first": Change(7.6, "40 minutes of samples", "every bucket of every level filled"),
    "varstore.snapshot": Change(1.4, "40 minutes of samples", "every bucket of every level filled"),
    "storage.mixed": Change(1.38, "an hour of a running stack", "an hour recorded once, labels made"),
}
"""Changes by line. If only a check was added, a difference is due to machine and load."""
