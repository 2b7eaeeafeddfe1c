"""The tables of the history for analysts: as views in DuckDB and Spark SQL, as lazy frames in Polars.

>>> from artimon import analysis
>>> analysis.duckdb().sql("SELECT count(*) FROM samples")  # doctest: +SKIP

Each function takes `hdfs`, the URI of the history: by default that of the stack on `data`, else ARTIMON_HDFS or that of
the stack on the default folder. Views and columns: docs/analysts.md."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from artimon.model.clock import SYSTEM_CLOCK
from artimon.polars_views import PolarsViews, make_views
from artimon.rawtable.announced_rows import SERIES_SCHEMA
from artimon.rawtable.delta import files_of, first_line
from artimon.rawtable.rollup_rows import ROLLUP_FILE_SCHEMA
from artimon.rawtable.rollups import ROLLUP_SCHEMA
from artimon.rawtable.schema import FILE_SCHEMA, SOURCES_SCHEMA, STAMP
from artimon.rawtable.sql_views import TABLES, view_statements
from artimon.stack.stack_location import locate_settings
from query_dsl.stores.history.engine import History
from query_dsl.stores.history.file_pruning import BOUNDS, SLACK_US
from query_dsl.stores.history.sample_query import HistoryError
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.times import parse_instant

SLACK = timedelta(microseconds=SLACK_US)
SPARK_TYPES = {
    "bool": "boolean",
    "double": "double",
    "int32": "int",
    "int64": "bigint",
    "map<string, string>": "map<string, string>",
    "string": "string",
    "timestamp[us, tz=UTC]": "timestamp",
}


def duckdb(
    selector: str | None = None,
    start: object = None,
    end: object = "now",
    *,
    hdfs: str | None = None,
    data: Path | str | None = None,
) -> Any:
    """Return a DuckDB connection with the views. With a `selector` or `start` they hold only those series and times in
    (start, end]: then only the files that may have them are read.

    Raises QueryError if DuckDB is not installed or an argument is invalid, HistoryError if a table cannot be read."""
    connection = _library("duckdb").connect()
    for name, table in _selected(_hdfs(hdfs, data), selector, start, end).items():
        connection.register(name, table)
    for statement in view_statements("duckdb"):
        connection.execute(statement)
    return connection


def polars(
    selector: str | None = None,
    start: object = None,
    end: object = "now",
    *,
    hdfs: str | None = None,
    data: Path | str | None = None,
) -> PolarsViews:
    """Return the views as lazy frames of Polars. Arguments and errors are those of `duckdb`."""
    pl = _library("polars")
    tables = _selected(_hdfs(hdfs, data), selector, start, end)
    frames = {name: pl.scan_pyarrow_dataset(table) for name, table in tables.items()}
    return make_views(pl, **frames)


def spark(session: Any, *, hdfs: str | None = None, data: Path | str | None = None) -> None:
    """Register the views as temporary views of a Spark session, over the files of the present versions: Spark needs no
    library of Delta. Call it again to see later files. Raises HistoryError."""
    root = _hdfs(hdfs, data)
    partitions = {"raw": ("keep",), "rollups": ("level", "keep")}
    schemas = {"raw": FILE_SCHEMA, "rollups": ROLLUP_FILE_SCHEMA, "series": SERIES_SCHEMA, "sources": SOURCES_SCHEMA}
    for name in TABLES:
        uri, columns = _uri(root, name), partitions.get(name, ())
        schema = ", ".join(f"`{one.name}` {SPARK_TYPES[str(one.type)]}" for one in schemas[name])
        groups: dict[tuple[Any, ...], list[str]] = defaultdict(list)
        table = _open(root, name)
        files = files_of(table, "path", *(f"partition.{one}" for one in columns)) if table is not None else []
        for path, *values in files:
            groups[tuple(values)].append(f"{uri.replace('s3://', 's3a://', 1)}/{path}")
        _spark_frame(session, schema, columns, groups).createOrReplaceTempView(name)
    for statement in view_statements("spark"):
        session.sql(statement)


def _spark_frame(session: Any, schema: str, columns: tuple[str, ...], groups: dict[tuple[Any, ...], list[str]]) -> Any:
    """Return a frame of the files of each partition; their folders do not tell the values of all partitions."""
    every = ", ".join([schema, *(f"`{name}` string" for name in columns)])
    frame = session.createDataFrame([], every)
    for values, paths in groups.items():
        part = session.read.schema(schema).parquet(*sorted(paths))
        told = (f"'{_escaped(value)}' AS `{name}`" for name, value in zip(columns, values, strict=True))
        frame = frame.unionByName(part.selectExpr("*", *told))
    return frame


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


# --- tables


def _hdfs(hdfs: str | None, data: Path | str | None) -> str:
    return hdfs or locate_settings(Path(data) if data is not None else None).hdfs


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise QueryError(f"{name} is not installed: pip install {name}") from None


def _open(hdfs: str, name: str) -> DeltaTable | None:
    """Return a table; None for roll-ups before the compactor has written any."""
    uri = _uri(hdfs, name)
    try:
        return DeltaTable(uri)
    except TableNotFoundError as error:
        if name == "rollups":
            return None
        raise HistoryError(f"no history at {hdfs} yet: {first_line(error)}") from error
    except (DeltaError, OSError) as error:
        raise HistoryError(f"the table {uri} cannot be read: {first_line(error)}") from error


def _uri(hdfs: str, name: str) -> str:
    return f"{hdfs.rstrip('/')}/artimon/{name}"


def _dataset(hdfs: str, name: str) -> Any:
    """Return a table as a dataset of Arrow.

    The dataset of delta-rs takes columns without statistics for null, so that a filter on one finds nothing: the
    fragments get other bounds here."""
    table = _open(hdfs, name)
    if table is None:
        return ds.dataset(ROLLUP_SCHEMA.empty_table())
    found = table.to_pyarrow_dataset()
    told = {row["path"]: row for row in pa.table(table.get_add_actions(flatten=True)).to_pylist()}
    fragments = [
        found.format.make_fragment(one.path, found.filesystem, _bounds(told[one.path], found.schema))
        for one in found.get_fragments()
    ]
    return ds.FileSystemDataset(fragments, found.schema, found.format, found.filesystem)


def _bounds(file: dict[str, Any], schema: Any) -> Any:
    """Return what is true for all rows of a file, by which it is skipped."""
    known = pc.scalar(True)
    for key, value in file.items():
        kind, _, name = key.partition(".")
        if kind == "partition":
            known &= pc.field(name) == pc.scalar(value)
        elif kind in ("min", "max") and name in BOUNDS and value is not None:
            most = value + SLACK if name == "time" else value  # Delta truncates times to milliseconds
            bound = pa.scalar(value if kind == "min" else most, schema.field(name).type)
            known &= pc.field(name) >= bound if kind == "min" else pc.field(name) <= bound
    return known


def _selected(hdfs: str, selector: str | None, start: object, end: object) -> dict[str, Any]:
    """Return the tables as datasets of Arrow, with the rows of the selected series and times."""
    tables = {name: _dataset(hdfs, name) for name in TABLES}
    if selector is None and start is None:
        return tables
    wanted = pc.scalar(True)
    if selector is not None:
        with History(hdfs) as history:
            found = history.described(selector, 0, "now")
        for key in ("source", "series"):
            wanted &= pc.field(key).isin(found.column(key).unique())
        tables["series"] = tables["series"].filter(wanted)
    if start is not None:
        after, until = (_stamp(text, name) for text, name in ((start, "from"), (end, "to")))
        wanted &= (pc.field("time") > after) & (pc.field("time") <= until)
    return {**tables, **{name: tables[name].filter(wanted) for name in ("raw", "rollups")}}


def _stamp(text: object, name: str) -> Any:
    return pa.scalar(parse_instant(text, name).resolve(SYSTEM_CLOCK.now_ms()) * 1000, STAMP)
