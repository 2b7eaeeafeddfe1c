"""Writes tests/golden/wire: answers and requests between processes, as the version before this one sends them.

Run by the program whose bytes are wanted: `git worktree add OLD COMMIT; cd OLD; python THIS FILE FOLDER`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from artimon.compute.aggregate import AggregateRequest, aggregate_buckets, encode_aggregate
from artimon.compute.reduction import WindowPlan
from artimon.model.ack_state import AckState, PartitionState
from artimon.model.grid import Grid
from artimon.model.select import INCARNATION_DTYPE, Buckets, Matcher, SelectRequest, Series, encode_buckets
from artimon.model.values import Kind, ValueType
from varstore.cluster.membership import Membership
from varstore.snapshot.manifest import Manifest

GRID = Grid(1_800_000_000_000, 60_000, 3)


def buckets() -> Buckets:
    """Return two series with three buckets."""
    pairs = ((0, ValueType.INTEGER, Kind.COUNTER), (1, ValueType.STRING, Kind.UNKNOWN))
    series = [Series(at, "shop.orders", {"host": f"h{at}", "context": "shop"}, of, kind) for at, of, kind in pairs]
    names = ("last", "last_time", "min", "max", "total", "count")
    statistics = {name: np.arange(6, dtype=np.int64).reshape(2, 3) * at for at, name in enumerate(names, 1)}
    births = np.zeros(2, INCARNATION_DTYPE)
    births["row"], births["birth_ms"] = [0, 1], 1_799_999_000_000
    times = np.array([0, 5], np.int64)
    return Buckets(GRID, series, statistics, ("ü",), births, times, times, ("late",), True)


def requests() -> tuple[SelectRequest, AggregateRequest]:
    matchers = (Matcher("__name__", "=", "shop.orders"), Matcher("host", "=~", "h.*"))
    windows = WindowPlan("last", 3, 1, 0)
    return SelectRequest(matchers, GRID, ("last", "count"), 10, 5), AggregateRequest(
        matchers, GRID, windows, "sum", ("host",), None, 10, 5, (7,), True, 1_000
    )


def main(folder: Path) -> None:
    select, aggregate = requests()
    state = AckState("cluster", "samples", "id", 5, {0: PartitionState(1, 0, 9, ((3, 4),), ((0, 0),))})
    manifest = Manifest(7, "0", 3, 5, "state", ("series",), {(60_000, 2): "row"}, {"state": 1, "series": 2, "row": 3})
    whole = aggregate_buckets(buckets(), aggregate)
    content = {
        "buckets.bin": encode_buckets(buckets()),
        "buckets_small.bin": encode_buckets(buckets(), small=True),
        "aggregate.bin": encode_aggregate(whole),
        "select.json": json.dumps(select.to_json()).encode(),
        "aggregate.json": json.dumps(aggregate.to_json()).encode(),
        "acks.json": state.to_json(),
        "membership.json": Membership(("0", "1"), 2).to_bytes(),
        "manifest.json": manifest.to_bytes(),
    }
    for name, data in content.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
