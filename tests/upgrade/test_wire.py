"""Messages between processes are read across two versions: bytes of the one before, additions of the next."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from artimon.compute.aggregate import AggregateRequest, aggregate_buckets, decode_aggregate
from artimon.model.ack_state import AckState
from artimon.model.batch import BatchError
from artimon.model.feed_codec import decode_range, encode_range
from artimon.model.ipc import read_ipc, write_ipc
from artimon.model.select import Buckets, SelectRequest, decode_buckets
from tests.upgrade.make_wire_golden import buckets, requests
from tests.varstore.test_feed_format import RANGE, ROWS
from varstore.cluster.membership import Membership
from varstore.snapshot.manifest import Manifest

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "wire"


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def equal(found: Buckets, wanted: Buckets) -> bool:
    plain = [replace(one, series=(), statistics={}) for one in (found, wanted)]
    rows = [
        {(one.name, *sorted(one.labels.items())): [many.statistics[name][at].tolist() for name in many.statistics]
         for at, one in enumerate(many.series)}
        for many in (found, wanted)
    ]  # fmt: skip
    return rows[0] == rows[1] and repr(plain[0]) == repr(plain[1])


@pytest.mark.parametrize("name", ["buckets.bin", "buckets_small.bin"])
def test_buckets_of_the_version_before(name: str) -> None:
    assert equal(decode_buckets(golden(name)), buckets())


def test_aggregates_of_the_version_before() -> None:
    found, wanted = decode_aggregate(golden("aggregate.bin")), aggregate_buckets(buckets(), requests()[1])
    assert (found.classes, found.notes, found.partial) == (wanted.classes, wanted.notes, wanted.partial)
    assert np.array_equal(found.values.members, wanted.values.members)
    assert np.array_equal(found.fingerprints, wanted.fingerprints)


JSON: list[tuple[str, Callable[[Any], Any], Any]] = [
    ("select.json", SelectRequest.from_json, requests()[0]),
    ("aggregate.json", AggregateRequest.from_json, requests()[1]),
    ("acks.json", lambda found: AckState.from_json(json.dumps(found).encode()).partitions[0].until, 1),
    ("membership.json", lambda found: Membership.from_bytes(json.dumps(found).encode()), Membership(("0", "1"), 2)),
]


@pytest.mark.parametrize(("name", "read", "wanted"), JSON)
def test_words_of_the_next_version_are_ignored(name: str, read: Callable[[Any], Any], wanted: Any) -> None:
    found = json.loads(golden(name))
    assert read(found) == wanted
    assert read({**found, "newer": [1, {"x": 2}]}) == wanted


def test_a_window_without_a_field_that_is_new_has_its_default() -> None:
    told = json.loads(golden("aggregate.json"))
    del told["windows"]["after"]
    assert AggregateRequest.from_json(told) == requests()[1]


def test_snapshots_of_the_version_before() -> None:
    found = Manifest.from_bytes(golden("manifest.json"), "here")
    assert asdict(found)["rows"] == {(60_000, 2): "row"}


def widened(part: bytes, **meta: str) -> bytes:
    """Return a part of a range with one more column, in front, and more metadata."""
    batch = read_ipc(part, 0)
    names = ["newer", *batch.schema.names]
    columns = [pa.array(["x"] * batch.num_rows), *batch.columns]
    told = {**(batch.schema.metadata or {}), **{key.encode(): value.encode() for key, value in meta.items()}}
    return bytes(write_ipc(pa.record_batch(columns, names=names).replace_schema_metadata(told)))


def test_a_range_of_the_next_version_is_read() -> None:
    """Columns and metadata that this program does not know are no error."""
    found = decode_range([widened(part, newer="1") for part in encode_range(RANGE)])
    assert (found.entries, found.vshards, found.samples.rows()) == (RANGE.entries, RANGE.vshards, ROWS)


def test_a_range_of_another_format_is_refused_with_the_remedy() -> None:
    entries, *rest = encode_range(RANGE)
    with pytest.raises(BatchError, match="format 2: this shard reads up to 1, upgrade it before the driver"):
        decode_range([widened(entries, format="2"), *rest])


@pytest.mark.parametrize("change", ["missing", "type", "twice"])
def test_a_range_with_other_columns_is_refused(change: str) -> None:
    entries, samples, strings = encode_range(RANGE)
    batch = read_ipc(samples, 0)
    columns, names = list(batch.columns), list(batch.schema.names)
    if change == "missing":
        columns, names = columns[1:], names[1:]
    elif change == "type":
        columns[1] = columns[1].cast(pa.float64(), safe=False)
    else:
        columns, names = [*columns, columns[1]], [*names, names[1]]
    bad = bytes(write_ipc(pa.record_batch(columns, names=names)))
    with pytest.raises(BatchError, match="columns"):
        decode_range([entries, bad, strings])
