"""Reads the raw table with delta-rs and DuckDB only: neither Spark nor any part of Artimon is imported.

    pip install deltalake pyarrow duckdb
    python examples/read_raw_without_spark.py --hdfs hdfs://127.0.0.1:8020 --name host.load --hours 6 --by host

Prints count, least, mean and greatest value by hour and label, as CSV. What the tables hold: docs/formats/raw.md and
docs/formats/series.md.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow.compute as pc
from deltalake import DeltaTable

FIND = """
    SELECT source, series, coalesce(any_value(labels[$by]), '') AS part
    FROM announced WHERE name = $name AND NOT clash GROUP BY ALL
"""
SUM_UP = """
    SELECT strftime(date_trunc('hour', time), '%Y-%m-%dT%H:00Z') AS hour, part, count(*) AS samples,
           min(value) AS least, avg(value) AS mean, max(value) AS greatest
    FROM (SELECT time AT TIME ZONE 'UTC' AS time, part, coalesce(double, integer) AS value
          FROM samples JOIN wanted USING (source, series))
    WHERE value IS NOT NULL
    GROUP BY ALL ORDER BY hour, part
"""


def report(hdfs: str, name: str, by: str, start: datetime, end: datetime) -> duckdb.DuckDBPyRelation:
    """Rows (hour, part, samples, least, mean, greatest) of a numeric variable in (start, end], by hour and label."""
    database = duckdb.connect()
    # the table of series is small and sorted by name: which series are meant, and which sources report them?
    # (one thread: threads of Arrow that close their files as the interpreter ends would abort it)
    announced = DeltaTable(f"{hdfs}/artimon/series").to_pyarrow_dataset()
    database.register("announced", announced.scanner(filter=pc.field("name") == name, use_threads=False).to_table())
    wanted = database.sql(FIND, params={"name": name, "by": by}).to_arrow_table()
    # Delta's statistics of source, series and time leave out whole files, Parquet's then row groups
    keys = [pc.field(key).isin(wanted.column(key)) for key in ("source", "series")]
    times = (pc.field("time") > pc.scalar(start)) & (pc.field("time") <= pc.scalar(end))
    raw = DeltaTable(f"{hdfs}/artimon/raw").to_pyarrow_dataset()
    columns = ["source", "series", "time", "integer", "double"]
    database.register(
        "samples", raw.scanner(columns=columns, filter=times & keys[0] & keys[1], use_threads=False).to_reader()
    )
    database.register("wanted", wanted)
    return database.sql(SUM_UP)


def moment(text: str) -> datetime:
    """ISO 8601; UTC unless it says otherwise."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hdfs", default="hdfs://127.0.0.1:8020")
    parser.add_argument("--name", required=True, help="name of a numeric variable")
    parser.add_argument("--by", default="host", help="a label")
    parser.add_argument("--end", type=moment, default=datetime.now(UTC), help="ISO 8601, UTC unless it says otherwise")
    parser.add_argument("--hours", type=float, default=6)
    given = parser.parse_args()
    rows = report(given.hdfs, given.name, given.by, given.end - timedelta(hours=given.hours), given.end)
    rows.to_df().to_csv(sys.stdout, index=False)


if __name__ == "__main__":
    main()
