"""Push-down: request to a store to compute a selection, windows, classes and a reducer, and the partial result that it
answers. Partials of disjoint series merge exactly, in any order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from artimon.compute.arrays import Arrays
from artimon.compute.cells import Ints
from artimon.compute.exact_sums import ExactSums
from artimon.compute.functions import WINDOW_FUNCTIONS
from artimon.compute.gathered import Blocks, block_sizes, read_blocks, renumber_classes, write_blocks
from artimon.compute.params import ArgumentError, Param, bind_params
from artimon.compute.partials import REDUCERS, Partial, merge_partials
from artimon.compute.ranks import BEST, ORDERED, ordered_partial
from artimon.compute.reduction import Reduction, SeriesCounts, WindowPlan
from artimon.compute.succession import normalize_incarnations
from artimon.model.grid import Grid
from artimon.model.ipc import read_ipc, write_ipc
from artimon.model.select import NAME, Buckets, Matcher, SelectError, SelectRequest
from artimon.model.series_table import SeriesTable
from artimon.model.vshards import from_hex, to_hex

ClassLabels = tuple[tuple[str, str], ...]
"""Labels of a class, sorted, without absent ones; `__name__` if it was listed."""
Fingerprints = npt.NDArray[np.uint64]
NO_FINGERPRINTS: Fingerprints = np.zeros(0, np.uint64)
MAX_OUTPUTS = 20_000


NOT_PUSHED = "not pushed"
"""Prefix of a shard's error that means NotPushed."""


class NotPushed(Exception):
    """The store cannot compute this request: the caller selects the buckets instead. Never fails a query."""


@dataclass(frozen=True, slots=True)
class AggregateRequest:
    """Reduce the matching series by classes. `grid` is the range that the store holds, with the step of a level."""

    matchers: tuple[Matcher, ...]
    grid: Grid
    windows: WindowPlan
    reducer: str
    by: tuple[str, ...] | None
    without: tuple[str, ...] | None = None
    """Exactly one of `by` and `without` is given."""
    limit: int = 2_000_000
    """Refuse the request if more series match."""
    vshards: int | None = None
    """Restrict to these virtual shards (bit v: virtual shard v); None: all that are held."""
    exclude: tuple[int, ...] = ()
    """Fingerprints to omit: these series are in two stores and are merged elsewhere."""
    with_fingerprints: bool = False
    """True if the answer must list the fingerprints of the selected series."""
    deadline_ms: int | None = None
    """Timeout of the caller, in milliseconds after the arrival of the request."""
    args: tuple[tuple[str, Any], ...] = ()
    """Arguments of the reducer."""
    gather: bool = False
    """For order statistics (ORDERED): answer the values, to be reduced together with those of other stores."""

    def to_json(self) -> dict[str, Any]:
        w = self.windows
        return {
            "matchers": [[m.label, m.op, m.value] for m in self.matchers],
            "grid": [self.grid.end_ms, self.grid.step_ms, self.grid.n],
            "windows": {name: getattr(w, name) for name in _WINDOWS} | {"args": [list(pair) for pair in w.args]},
            "reducer": self.reducer,
            "by": None if self.by is None else list(self.by),
            "without": None if self.without is None else list(self.without),
            "limit": self.limit,
            "vshards": None if self.vshards is None else to_hex(self.vshards),
            "exclude": list(self.exclude),
            "prints": self.with_fingerprints,
            "deadline_ms": self.deadline_ms,
            "args": [list(pair) for pair in self.args],
            "gather": self.gather,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AggregateRequest:
        """Inverse of `to_json`; `check_aggregate` validates the result."""
        by, without, vshards = data["by"], data["without"], data["vshards"]
        return cls(
            tuple(Matcher(*m) for m in data["matchers"]),
            Grid(*data["grid"]),
            _window_plan(data["windows"]),
            data["reducer"],
            None if by is None else tuple(str(label) for label in by),
            None if without is None else tuple(str(label) for label in without),
            int(data["limit"]),
            None if vshards is None else from_hex(vshards),
            tuple(int(print_) for print_ in data["exclude"]),
            bool(data["prints"]),
            None if data["deadline_ms"] is None else int(data["deadline_ms"]),
            _pairs(data.get("args", ())),
            data.get("gather") is True,
        )

    def buckets(self) -> SelectRequest:
        """Return the selection from which `aggregate_buckets` computes the same result."""
        statistics = ("count", *(s for s in WINDOW_FUNCTIONS[self.windows.function].statistics if s != "count"))
        return SelectRequest(self.matchers, self.grid, statistics, self.limit)


_WINDOWS = (
    "function", "outputs", "width", "first_end", "each", "left", "right", "max_gap_ms", "min_count", "full", "after",
)  # fmt: skip


def _window_plan(found: Mapping[str, Any]) -> WindowPlan:
    """Return the windows of a request. A field that an older client does not send has its default."""
    return WindowPlan(**{name: found[name] for name in _WINDOWS if name in found}, args=_pairs(found["args"]))


def _pairs(args: Sequence[Sequence[Any]]) -> tuple[tuple[str, Any], ...]:
    """Convert arguments to pairs; a value other than a number or text becomes its repr, which no function accepts."""
    return tuple(
        (str(name), value if isinstance(value, bool | int | float | str) else repr(value)) for name, value in args
    )


def reducer_params(reducer: str) -> tuple[Param, ...]:
    """Return the parameters of a reducer. Raises SelectError for an unknown one."""
    known: dict[str, tuple[Param, ...]] = {**dict.fromkeys(REDUCERS, ()), **ORDERED, **BEST}
    if reducer not in known:
        raise SelectError(f"unknown reducer {reducer!r}: use one of {', '.join(known)}")
    return known[reducer]


def check_aggregate(request: AggregateRequest) -> None:
    """Validate an untrusted request. Raises SelectError, and NotPushed for the name of a function that only newer
    versions have."""
    w = request.windows
    if w.function not in WINDOW_FUNCTIONS:
        raise NotPushed(f"unknown window function {w.function!r:.80}")
    if request.reducer not in {*REDUCERS, *ORDERED, *BEST}:
        raise NotPushed(f"unknown reducer {request.reducer!r:.80}")
    try:
        bind_params(w.function, WINDOW_FUNCTIONS[w.function].params, w.args)
        bind_params(request.reducer, reducer_params(request.reducer), request.args)
    except ArgumentError as problem:
        raise SelectError(str(problem)) from None
    if (request.by is None) == (request.without is None):
        raise SelectError("give exactly one of by and without")
    columns = w.left + request.grid.n + w.right
    last = w.first_end + w.each * (w.outputs - 1)
    if not (
        min(w.left, w.right, w.max_gap_ms) >= 0
        and 0 <= w.after < w.width
        and min(w.outputs, w.width, w.each) >= 1
        and columns <= 2 * MAX_OUTPUTS
        and w.first_end - w.width + 1 >= 0
        and last < columns
    ):
        raise SelectError(f"windows {w} do not lie in the {request.grid.n} buckets of the grid")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Answer. Classes in any order, each with at least one member."""

    classes: tuple[ClassLabels, ...]
    values: Partial
    counts: SeriesCounts
    gauge: ClassLabels = ()
    """Name and labels of the first gauge in canonical order, if `counts.gauges`."""
    newest_ms: int = 0
    """Time of the newest sample of the selected series; 0 if a sample is in the range."""
    fingerprints: Fingerprints = field(default_factory=lambda: NO_FINGERPRINTS)
    """Fingerprints of the selected series, sorted, if requested."""
    notes: tuple[str, ...] = ()
    partial: bool = False
    """True if series are missing."""
    candidates: Fingerprints = field(default_factory=lambda: NO_FINGERPRINTS)
    """For reducers that choose members (BEST): a superset of the members to choose, sorted."""
    gathered: Blocks | None = None
    """If requested, the values of all members with the numbers of their classes; `values` then has members only."""


@runtime_checkable
class AggregatingStore(Protocol):
    """Store with pushdown; from other stores the evaluator selects buckets."""

    def aggregate(self, request: AggregateRequest) -> Aggregate:
        """Compute an aggregate. Raises SelectError; raises NotPushed if the caller must select buckets instead."""
        ...


def classes_of(
    keys: Sequence[ClassLabels], by: tuple[str, ...] | None, without: tuple[str, ...] | None
) -> list[ClassLabels]:
    """Return the class of each series; a key holds its name, as `__name__`, and its sorted labels."""
    if by is not None:
        wanted = set(by)
        return [tuple(pair for pair in key if pair[0] in wanted) for key in keys]
    left_out = {*(without or ()), NAME}
    return [tuple(pair for pair in key if pair[0] not in left_out) for key in keys]


def arrays_of(buckets: Buckets) -> Arrays:
    """Return the buckets as the input of window functions."""
    table = SeriesTable.from_series(buckets.series)
    return Arrays(
        kinds=table.kinds,
        types=table.types,
        grid=buckets.grid,
        stats={name: np.asarray(matrix, np.int64) for name, matrix in buckets.statistics.items()},
        lives=normalize_incarnations(buckets.births),
        ended_ms=buckets.ended_ms if len(buckets.ended_ms) == len(table) else np.zeros(len(table), np.int64),
    )


def aggregate_buckets(buckets: Buckets, request: AggregateRequest) -> Aggregate:
    """Compute an aggregate from buckets that were selected with `request.buckets()`."""
    table = SeriesTable.from_series(buckets.series)
    keys: list[ClassLabels] = [((NAME, name), *pairs) for name, pairs in table.texts()]
    found = classes_of(keys, request.by, request.without)
    codes: dict[ClassLabels, int] = {}
    numbers = np.array([codes.setdefault(class_, len(codes)) for class_ in found], np.int64)
    n, data = len(keys), arrays_of(buckets)
    args = bind_params(request.reducer, reducer_params(request.reducer), request.args)
    reducing = Reduction(request.windows, request.reducer, len(codes), reducer_args=args)
    reducing.counts.selected = n
    if n:
        reducing.add(data, numbers, np.arange(n))
    gauges = np.concatenate(reducing.gauge_rows) if reducing.gauge_rows else np.zeros(0, np.intp)
    gauge = min((keys[row] for row in gauges.tolist()), default=())
    prints = np.sort(table.fingerprints) if request.with_fingerprints else NO_FINGERPRINTS
    newest = int(buckets.newest_ms.max(initial=0)) if not reducing.counts.sampled else 0
    whole = Aggregate(
        tuple(codes), reducing.result(request.gather), reducing.counts, gauge, newest, prints, buckets.notes,
        buckets.partial, distinct_fingerprints(table.fingerprints, reducing.best), gathered_values(reducing, request),
    )  # fmt: skip
    return drop_empty_classes(whole)


def gathered_values(reducing: Reduction, request: AggregateRequest) -> Blocks | None:
    """Return the values of all members if `request` gathers them, else None."""
    return tuple(reducing.blocks) if request.gather and request.reducer in ORDERED else None


def reduce_gathered(found: Aggregate, request: AggregateRequest) -> Aggregate:
    """Reduce the gathered values, if any."""
    if found.gathered is None:
        return found
    args = bind_params(request.reducer, reducer_params(request.reducer), request.args)
    members, outputs = found.values.members, request.windows.outputs
    values = ordered_partial(request.reducer, args, found.gathered, members, outputs)
    return replace(found, values=values, gathered=None)


def distinct_fingerprints(prints: Fingerprints, rows: Sequence[npt.NDArray[np.intp]]) -> Fingerprints:
    """Return the distinct fingerprints of some rows, sorted."""
    return np.unique(np.concatenate([prints[some] for some in rows])) if rows else NO_FINGERPRINTS


def drop_empty_classes(found: Aggregate) -> Aggregate:
    """Remove the classes without members."""
    kept = np.flatnonzero(found.values.members > 0)
    if len(kept) == len(found.classes):
        return found
    gathered = found.gathered
    if gathered is not None:
        place = np.full(len(found.classes), -1, np.int64)
        place[kept] = np.arange(len(kept))
        gathered = renumber_classes(gathered, place)
    classes = tuple(found.classes[i] for i in kept.tolist())
    return replace(found, classes=classes, values=_rows(found.values, kept), gathered=gathered)


def _rows(values: Partial, kept: Ints) -> Partial:
    sums, extreme = values.sums, values.extreme
    return Partial(
        values.reducer,
        values.members[kept],
        values.double[kept],
        values.count[kept],
        None if sums is None else ExactSums(sums.high[kept], sums.low[kept]),
        None if extreme is None else extreme[kept],
    )


def merge_aggregates(parts: Sequence[Aggregate]) -> Aggregate:
    """Merge the answers for disjoint series; at least one part. Raises NotPushed if order statistics lack values."""
    if len(parts) == 1:
        return parts[0]
    gathers = [part.gathered is not None for part in parts]
    if any(gathers) != all(gathers) or (parts[0].values.reducer in ORDERED and not all(gathers)):
        raise NotPushed(f"{parts[0].values.reducer} needs all members of a class in one place")
    codes: dict[ClassLabels, int] = {}
    places = [np.array([codes.setdefault(c, len(codes)) for c in part.classes], np.int64) for part in parts]
    counts = SeriesCounts()
    for part in parts:
        counts.add(part.counts)
    return Aggregate(
        tuple(codes),
        merge_partials([part.values for part in parts], places, len(codes)),
        counts,
        min((part.gauge for part in parts if part.gauge), default=()),
        0 if counts.sampled else max(part.newest_ms for part in parts),
        np.sort(np.concatenate([part.fingerprints for part in parts])),
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        any(part.partial for part in parts),
        np.unique(np.concatenate([part.candidates for part in parts])),
        tuple(
            block
            for part, place in zip(parts, places, strict=True)
            for block in renumber_classes(part.gathered or (), place)
        )
        if all(gathers)
        else None,
    )


def encode_aggregate(found: Aggregate) -> bytes:
    """Encode as Arrow IPC: a row per class, values as fixed-size lists, other fields in the schema's metadata. The
    gathered values follow the stream."""
    values = found.values
    columns: dict[str, Any] = {
        "class": pa.array([json.dumps(class_, ensure_ascii=False) for class_ in found.classes], pa.utf8()),
        "members": pa.array(values.members),
        "double": pa.array(values.double),
        "count": _lists(values.count),
    }
    if values.sums is not None:
        columns |= {"high": _lists(values.sums.high), "low": _lists(values.sums.low)}
    if values.extreme is not None:
        columns["extreme"] = _lists(values.extreme)
    meta = {
        "reducer": values.reducer,
        "outputs": int(values.count.shape[1]),
        "counts": asdict(found.counts),
        "gauge": found.gauge,
        "newest_ms": found.newest_ms,
        "notes": list(found.notes),
        "partial": found.partial,
        "gathered": None if found.gathered is None else block_sizes(found.gathered),
    }
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    prints = {b"prints": found.fingerprints, b"best": found.candidates}
    head = {b"artimon": json.dumps(meta).encode()} | {name: p.astype("<u8").tobytes() for name, p in prints.items()}
    first = write_ipc(batch.replace_schema_metadata(head))
    return first if found.gathered is None else write_blocks(first, found.gathered)


def _lists(matrix: npt.NDArray[Any]) -> Any:
    flat = pa.array(np.ascontiguousarray(matrix).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1])


def decode_aggregate(data: bytes) -> Aggregate:
    """Decode `encode_aggregate`; arrays are read-only views."""
    batch = read_ipc(data)
    meta = json.loads(batch.schema.metadata[b"artimon"])
    shape = (batch.num_rows, int(meta["outputs"]))

    def matrix(name: str) -> npt.NDArray[Any]:
        flat: npt.NDArray[Any] = batch.column(name).flatten().to_numpy(zero_copy_only=True)
        return flat.reshape(shape)

    names = set(batch.schema.names)
    values = Partial(
        meta["reducer"],
        batch.column("members").to_numpy(zero_copy_only=True),
        batch.column("double").to_numpy(zero_copy_only=False),
        matrix("count"),
        ExactSums(matrix("high"), matrix("low")) if "high" in names else None,
        matrix("extreme") if "extreme" in names else None,
    )
    return Aggregate(
        tuple(_class(json.loads(text)) for text in batch.column("class").to_pylist()),
        values,
        SeriesCounts(**{one.name: int(meta["counts"].get(one.name, 0)) for one in fields(SeriesCounts)}),
        _class(meta["gauge"]),
        int(meta["newest_ms"]),
        np.frombuffer(batch.schema.metadata[b"prints"], "<u8"),
        tuple(meta["notes"]),
        bool(meta["partial"]),
        np.frombuffer(batch.schema.metadata[b"best"], "<u8"),
        None if meta.get("gathered") is None else read_blocks(data, meta["gathered"], shape[1]),
    )


def _class(pairs: Sequence[Sequence[str]]) -> ClassLabels:
    return tuple((str(label), str(value)) for label, value in pairs)
