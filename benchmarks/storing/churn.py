"""Table of series of a cluster whose pods live for two days each: 100 series a pod, over a year."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from artimon.rawtable.announced_rows import SERIES_SCHEMA
from artimon.rawtable.merged_table import BASE, DELTA, MERGE_PASS_ROWS
from artimon.rawtable.schema import DAY_MS, STAMP
from artimon.rawtable.series_delta import SeriesTable
from benchmarks.peers.series import PeerSeries

OF_POD = 100
NODES, NAMESPACES, CONTAINERS = 3_000, 40, 5
LIFE_DAYS, YEAR_DAYS = 2, 365
KEYS = ("container", "namespace", "node", "pod")
_ODD = np.uint64(0x9E3779B97F4A7C15)
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Churn:
    """`series` series of pods, of which one after another begins from `start_ms` on."""

    series: int
    start_ms: int

    @property
    def pods(self) -> int:
        return self.series // OF_POD

    def name(self, n: int) -> str:
        return f"pod.metric.{n:02}"

    def labels(self, pod: int) -> dict[str, str]:
        """Return the labels of the series of a pod."""
        values = f"c{pod % CONTAINERS}", f"ns-{pod % NAMESPACES:02}", f"node-{pod % NODES:04}", self.pod_name(pod)
        return dict(zip(KEYS, values, strict=True))

    def pod_name(self, pod: int) -> str:
        return f"pod-{pod * 2654435761 % 2**32:08x}-{pod}"

    def begin_ms(self, pod: Any) -> Any:
        """Return the first time of a pod."""
        return self.start_ms + pod * (YEAR_DAYS * DAY_MS // max(1, self.pods))

    def fill(self, hdfs: str) -> int:
        """Write the table as a daily merge leaves it, and the announcements of a day after it; return its bytes. Hashes
        of numbers stand for the fingerprints, and numbers of nodes for the sources."""
        table = SeriesTable(hdfs)
        table.refresh()
        made = table.new_files()
        ids = np.arange(self.pods * OF_POD)
        prints = (ids.astype(np.uint64) * _ODD).view(np.int64)
        order = np.argsort(prints)
        for start in range(0, len(order), MERGE_PASS_ROWS):
            part = order[start : start + MERGE_PASS_ROWS]
            made.add(BASE, self._rows(part, prints[part]))
        live = ids[self.pods * OF_POD * (YEAR_DAYS - LIFE_DAYS) // YEAR_DAYS :]
        made.add(DELTA, self._rows(live, prints[live]))
        files = made.close()
        table.commit([file.action() for file in files])
        return sum(file.size for file in files)

    def peer_series(self) -> Iterator[PeerSeries]:
        """Yield the series in the form of the peers, a sample each."""
        one = np.ones(1)
        for pod in range(self.pods):
            labels, times = self.labels(pod), np.array([self.begin_ms(pod)])
            for n in range(OF_POD):
                yield PeerSeries(self.name(n).replace(".", "_"), labels, times, one, True)

    def _rows(self, ids: Ints, prints: Ints) -> Any:
        """Return rows of SERIES_SCHEMA in their order: by name, series and source."""
        order = np.lexsort((ids // OF_POD % NODES, prints, ids % OF_POD))
        ids, prints = ids[order], prints[order]
        pod, n = np.divmod(ids, OF_POD)
        columns = [
            ([f"c{i}" for i in range(CONTAINERS)], pod % CONTAINERS),
            ([f"ns-{i:02}" for i in range(NAMESPACES)], pod % NAMESPACES),
            ([f"node-{i:04}" for i in range(NODES)], pod % NODES),
        ]
        pods, of = np.unique(pod, return_inverse=True)
        columns.append(([self.pod_name(one) for one in pods.tolist()], of.reshape(-1)))
        texts, at, places = list[str](), 0, []
        for values, codes in columns:
            places.append(codes + at)
            texts += values
            at += len(values)
        items = pa.array(texts).take(pa.array(np.stack(places, axis=1).reshape(-1)))
        keys = pa.array(KEYS).take(pa.array(np.tile(np.arange(len(KEYS)), len(ids))))
        offsets = pa.array(np.arange(len(ids) + 1) * len(KEYS), pa.int32())
        first_us = self.begin_ms(pod) * 1000
        rows = {
            "source": pa.array(pod % NODES, pa.int32()),
            "series": pa.array(prints),
            "name": pa.array([self.name(i) for i in range(OF_POD)]).take(pa.array(n)),
            "labels": pa.MapArray.from_arrays(offsets, keys, items),
            **{name: pa.array(np.full(len(ids), value)) for name, value in _SAME.items()},
            "block": pa.array(np.zeros(len(ids)), pa.int32()),
            "first_seen": pa.array(first_us).view(STAMP),
            "last_seen": pa.array(first_us + LIFE_DAYS * DAY_MS * 1000).view(STAMP),
            "clash": pa.array(np.zeros(len(ids), np.bool_)),
        }
        in_schema = [pc.cast(rows[name], SERIES_SCHEMA.field(name).type) for name in SERIES_SCHEMA.names]
        return pa.table(in_schema, schema=SERIES_SCHEMA)


_SAME = {"type": "double", "kind": "gauge", "unit": "", "help": "of a pod"}
