"""Export of samples as Parquet, Arrow, CSV and OpenMetrics, table by table."""

from __future__ import annotations

import io
import math
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from artimon.cli.history_output import Writer, write_arrow, write_batches
from artimon.model.import_chunk import UNKNOWN_START_MS
from artimon.model.labels import parse_canonical
from artimon.model.value_traits import VALUE_COLUMNS
from artimon.rawtable.schema import FILE_SCHEMA, STAMP
from pipeline.compaction.merge import MAX_BATCH_ROWS, merge_all
from pipeline.compaction.row_order import sort_rows
from pipeline.compaction.sorted_runs import spill
from query_dsl.stores.history.result import EXPORT_SCHEMA, HistoryAnswer, ReadStats
from query_dsl.tree.query_errors import QueryError
from sources.history.import_builder import COUNTER_SUFFIXES

EXPORT_FORMATS = ("parquet", "arrow", "csv", "openmetrics")
_OTHER = re.compile(r"[^a-zA-Z0-9_:]")


def export_samples(batches: Iterator[Any], series: Any, target: Path, form: str, data: Path) -> list[str]:
    """Write tables of EXPORT_SCHEMA to a file; return notes. `series`: the described series; `data`: local folder, of
    which about 60 bytes a sample are used for OpenMetrics. Raises OSError, QueryError, and errors of `batches`."""
    left_out: dict[str, int] = {}
    writers: dict[str, Writer] = {
        "parquet": _write_parquet,
        "arrow": partial(write_arrow, schema=EXPORT_SCHEMA),
        "csv": _write_csv,
        "openmetrics": partial(_write_openmetrics, series=series, data=data, left_out=left_out),
    }
    notes = [f"{write_batches(batches, target, writers[form]):,} samples"]
    return notes + [f"{count:,} {what} are left out: OpenMetrics has none" for what, count in left_out.items()]


def _write_parquet(batches: Iterable[Any], out: IO[bytes]) -> int:
    rows = 0
    with pq.ParquetWriter(out, EXPORT_SCHEMA, compression="zstd") as writer:
        for batch in batches:
            writer.write_table(batch)
            rows += len(batch)
    return rows


def _write_csv(batches: Iterable[Any], out: IO[bytes]) -> int:
    text = io.TextIOWrapper(out, "utf-8", newline="", write_through=True)
    rows, nothing = 0, ReadStats("local", 0, 0, 0, 0)
    HistoryAnswer(EXPORT_SCHEMA.empty_table(), (), nothing, ()).write_csv(text)
    for batch in batches:
        HistoryAnswer(batch, (), nothing, ()).write_csv(text, header=False)
        rows += len(batch)
    text.detach()
    return rows


# --- OpenMetrics: samples of a family are adjacent, those of a series in the order of time


@dataclass(frozen=True, slots=True)
class _Exposed:
    """A series as it is exposed: head of its family, its sample's name and labels, those of its birth, "" for none."""

    head: str
    text: str
    created: str


def _exposed_series(series: Any) -> tuple[dict[str, int], list[_Exposed]]:
    """Return the rank of each series' text in the order of their families, and the series by rank. Raises QueryError
    if two names are exposed as one."""
    rows = {row["text"]: row for row in series.select(["text", "name", "kind", "unit", "help"]).to_pylist()}
    names: dict[str, str] = {}
    for row in rows.values():
        name = _exposed_name(row["name"], row["kind"])
        if names.setdefault(name, row["name"]) != row["name"]:
            raise QueryError(f"{row['name']} and {names[name]} are both {name} in OpenMetrics: export them one by one")
    texts = sorted(rows, key=lambda text: (_exposed_name(rows[text]["name"], rows[text]["kind"]), text))
    return {text: rank for rank, text in enumerate(texts)}, [_expose(rows[text]) for text in texts]


def _exposed_name(name: str, kind: str) -> str:
    plain = _OTHER.sub("_", name)
    return plain + "_total" if kind == "counter" and not plain.endswith(COUNTER_SUFFIXES) else plain


def _expose(row: Mapping[str, str]) -> _Exposed:
    name = _exposed_name(row["name"], row["kind"])
    _, labels = parse_canonical(row["text"])
    pairs = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
    inner = f"{{{pairs}}}" if pairs else ""
    is_total = row["kind"] == "counter" and name.endswith("_total")
    family = name.removesuffix("_total") if is_total else name
    head = ""
    if row["kind"] != "counter" or is_total:
        head = f"# TYPE {family} {row['kind']}\n"
        if row["unit"] and family.endswith(f"_{row['unit']}"):  # a rule of OpenMetrics
            head += f"# UNIT {family} {row['unit']}\n"
        head += f"# HELP {family} {_escaped(row['help'])}\n" if row["help"] else ""
    return _Exposed(head, name + inner, f"{family}_created{inner}" if is_total else "")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _write_openmetrics(
    batches: Iterable[Any], out: IO[bytes], series: Any, data: Path, left_out: dict[str, int]
) -> int:
    ranks, exposed = _exposed_series(series)
    data.mkdir(parents=True, exist_ok=True)
    rows, head = 0, ""
    with tempfile.TemporaryDirectory(prefix="export-", dir=data) as folder:
        runs = [
            spill(Path(folder) / "runs.arrow", [sort_rows(_ranked(batch, ranks))], MAX_BATCH_ROWS) for batch in batches
        ]
        for table in merge_all(runs, Path(folder)):
            for rank, part in _by_series(table):
                if exposed[rank].head != head:
                    head = exposed[rank].head
                    out.write(head.encode())
                rows += _write_series(part, exposed[rank], out, left_out)
    out.write(b"# EOF\n")
    return rows


def _ranked(batch: Any, ranks: Mapping[str, int]) -> Any:
    """Return rows of FILE_SCHEMA whose series is its rank."""
    coded = batch.column("series").combine_chunks()
    rank = pa.array([ranks[text] for text in coded.dictionary.to_pylist()], pa.int64()).take(coded.indices)
    times = [batch.column(name).cast(STAMP) for name in ("time", "birth")]
    rest = [batch.column(name) for name in ("future", *VALUE_COLUMNS)]
    return pa.table([pa.array(np.zeros(len(batch), np.int32)), rank, *times, *rest], schema=FILE_SCHEMA)


def _by_series(table: Any) -> Iterator[tuple[int, Any]]:
    ranks = table.column("series").to_numpy()
    starts = [0, *(np.flatnonzero(ranks[1:] != ranks[:-1]) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], len(ranks)], strict=True):
        yield int(ranks[start]), table.slice(start, end - start)


def _write_series(rows: Any, series: _Exposed, out: IO[bytes], left_out: dict[str, int]) -> int:
    """Write samples of one series; return their number."""
    stamps = [rows.column(name).cast(pa.int64()).to_numpy() // 1000 for name in ("time", "birth")]
    columns = [rows.column(name).to_pylist() for name in VALUE_COLUMNS]
    lines: list[str] = []
    written = 0
    for time_ms, birth_ms, whole, double, flag, text in zip(*(one.tolist() for one in stamps), *columns, strict=True):
        value = whole if whole is not None else flag if flag is not None else double
        if value is None:
            what = "ends of series" if text is None else "texts"
            left_out[what] = left_out.get(what, 0) + 1
            continue
        at = f"{time_ms // 1000}.{time_ms % 1000:03d}"
        lines.append(f"{series.text} {_number(value)} {at}\n")
        written += 1
        if series.created and birth_ms > UNKNOWN_START_MS:
            lines.append(f"{series.created} {birth_ms // 1000}.{birth_ms % 1000:03d} {at}\n")
    out.write("".join(lines).encode())
    return written


def _number(value: float | bool) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    return repr(value + 0) if isinstance(value, bool) else repr(value)
