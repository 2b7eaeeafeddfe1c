"""Views of the tables for SQL engines: samples, buckets of roll-ups and increases, with names and labels.

One text serves all dialects; a dialect says where they differ. docs/analysts.md describes the columns. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

TABLES = ("raw", "rollups", "series", "sources")
"""Tables that the views read, by their folders below `artimon`."""


@dataclass(frozen=True, slots=True)
class SqlDialect:
    """Spelling of one SQL engine."""

    opening: str
    """Statement that gives a table its name; `{table}` and `{uri}` are replaced."""
    create: str
    """Beginning of a statement that makes a view."""
    wide: str
    """Integer type that holds differences and sums of int64."""
    epoch: str
    """Seconds since 1970 of `{0}`."""
    quote: str = '"'
    head: str = ""
    """Statements before all others."""


DIALECTS: Mapping[str, SqlDialect] = MappingProxyType(
    {
        "duckdb": SqlDialect(
            "CREATE OR REPLACE VIEW {table} AS SELECT * FROM delta_scan('{uri}');",
            "CREATE OR REPLACE VIEW",
            "HUGEINT",
            "epoch({0})",
            head="INSTALL delta;\nLOAD delta;",
        ),
        "spark": SqlDialect(
            "CREATE OR REPLACE TEMPORARY VIEW {table} AS SELECT * FROM delta.`{uri}`;",
            "CREATE OR REPLACE TEMPORARY VIEW",
            "DECIMAL(38, 0)",
            "(unix_micros({0}) / CAST(1000000 AS DOUBLE))",
            "`",
        ),
        "trino": SqlDialect(
            "CALL system.register_table(schema_name => 'artimon', table_name => '{table}', table_location => '{uri}');",
            "CREATE OR REPLACE VIEW",
            "DECIMAL(38, 0)",
            "to_unixtime({0})",
            head="USE delta.artimon;",
        ),
    }
)

_ANNOUNCED = """
SELECT newest.source AS source_id, newest.series, newest.name, newest.labels, names.source, newest."type", newest.kind,
       newest.unit, newest.help, newest.first_seen, newest.last_seen
FROM (
  SELECT source, series, name, max_by(labels, last_seen) AS labels, max_by("type", last_seen) AS "type",
         max_by(kind, last_seen) AS kind, max_by(unit, last_seen) AS unit, max_by(help, last_seen) AS help,
         min(first_seen) AS first_seen, max(last_seen) AS last_seen
  FROM series GROUP BY source, series, name HAVING NOT bool_or(clash)
) newest JOIN sources names ON names.id = newest.source
"""
_SAMPLES = """
SELECT r."time", a.name, a.labels, a.source, a.kind, a.unit,
       CASE WHEN r."integer" IS NOT NULL THEN 'integer' WHEN r."double" IS NOT NULL THEN 'double'
            WHEN r."boolean" IS NOT NULL THEN 'boolean' WHEN r."string" IS NOT NULL THEN 'string'
            ELSE 'ended' END AS "type",
       coalesce(r."double", CAST(r."integer" AS DOUBLE), CAST(CAST(r."boolean" AS INTEGER) AS DOUBLE)) AS value,
       r."string" AS "text", r."integer" AS whole, r.birth, r.future, r.keep, r.series, r.source AS source_id
FROM raw r JOIN announced a ON a.source_id = r.source AND a.series = r.series
"""
_BUCKET_ROWS = """
SELECT source, series, CAST("level" AS INTEGER) AS "level", "time", birth, last_time, "count", "string" AS "text",
       whole, low, coalesce("double", CAST(whole AS DOUBLE)) AS "last",
       coalesce(min_double, "double", CAST(low AS DOUBLE)) AS "min",
       coalesce(max_double, "double", CAST(high AS DOUBLE)) AS "max",
       coalesce(sum_double, "double" * "count",
                CAST(2 * rest + "count" * (low + high - abs(low + high) % 2) AS DOUBLE) / 2) AS "sum"
FROM (
  SELECT source, series, "level", "time", birth, last_time, "count", "string", "double", min_double, max_double,
         sum_double, whole, CAST(coalesce(rest, 0) AS {wide}) AS rest,
         whole - coalesce(below, 0) - CASE WHEN below < 0 THEN {unsigned} ELSE 0 END AS low,
         whole + coalesce(above, 0) + CASE WHEN above < 0 THEN {unsigned} ELSE 0 END AS high
  FROM (
    SELECT r.*, CAST(coalesce("integer", CAST("boolean" AS BIGINT)) AS {wide}) AS whole
    FROM rollups r WHERE "count" > 0
  ) typed
) folded
"""
_BUCKETS = """
SELECT b."level", b."time", a.name, a.labels, a.source, a.kind, a.unit, b."count", b."last", b."text", b.last_time,
       b."min", b."max", b."sum", b."sum" / b."count" AS mean, b.series, b.source AS source_id
FROM (
  SELECT source, series, "level", "time", CAST(sum("count") AS BIGINT) AS "count",
         max_by("last", last_time) AS "last", max_by("text", last_time) AS "text", max(last_time) AS last_time,
         min("min") AS "min", max("max") AS "max", sum("sum") AS "sum"
  FROM bucket_rows GROUP BY source, series, "level", "time"
) b JOIN announced a ON a.source_id = b.source AND a.series = b.series
"""
_INCREASES = """
SELECT g."level", g."time", a.name, a.labels, a.source, a.unit, g.increase, g.series, g.source AS source_id
FROM (
  SELECT source, series, "level", "time", sum(grown) AS increase
  FROM (
    SELECT source, series, "level", "time",
           CASE WHEN previous_birth = birth AND previous_time >= edge
                THEN coalesce(CAST(whole - previous_whole AS DOUBLE), "last" - previous_last)
                WHEN (previous_birth IS NULL OR previous_birth <> birth)
                     AND (previous_time >= edge OR {birth} >= edge) THEN "last"
                WHEN "count" > 1 THEN coalesce(CAST(whole - low AS DOUBLE), "last" - "min") END AS grown
    FROM (
      SELECT m.*, {time} - 3 * "level" AS edge,
             lag(birth) OVER (PARTITION BY source, series, "level" ORDER BY birth, "time") AS previous_birth,
             {last_time} AS previous_time,
             lag(whole) OVER (PARTITION BY source, series, "level" ORDER BY birth, "time") AS previous_whole,
             lag("last") OVER (PARTITION BY source, series, "level" ORDER BY birth, "time") AS previous_last
      FROM (
        SELECT source, series, "level", birth, "time", sum("count") AS "count", max_by(whole, last_time) AS whole,
               max_by("last", last_time) AS "last", min(low) AS low, min("min") AS "min", max(last_time) AS last_time
        FROM bucket_rows WHERE "last" IS NOT NULL GROUP BY source, series, "level", birth, "time"
      ) m
    ) follow
  ) g GROUP BY source, series, "level", "time"
) g JOIN announced a ON a.source_id = g.source AND a.series = g.series
WHERE a.kind = 'counter' AND g.increase IS NOT NULL
"""
_PREVIOUS_TIME = 'lag(last_time) OVER (PARTITION BY source, series, "level" ORDER BY birth, "time")'
VIEWS: Mapping[str, str] = MappingProxyType(
    {
        "announced": _ANNOUNCED,
        "samples": _SAMPLES,
        "bucket_rows": _BUCKET_ROWS,
        "buckets": _BUCKETS,
        "increases": _INCREASES,
    }
)
"""Views in the order in which they are made: later ones read earlier ones."""


def view_statements(dialect: str) -> Iterator[str]:
    """Yield the statements that make the views over TABLES. Raises KeyError for an unknown dialect."""
    way = DIALECTS[dialect]
    parts = {
        "wide": way.wide,
        "unsigned": f"CAST('{2**64}' AS {way.wide})",
        "birth": way.epoch.format("birth"),
        "time": way.epoch.format('"time"'),
        "last_time": way.epoch.format(_PREVIOUS_TIME),
    }
    for name, text in VIEWS.items():
        yield f"{way.create} {name} AS{text.format(**parts)}".strip().replace('"', way.quote)


def views_script(dialect: str, hdfs: str) -> str:
    """Return the script that opens the tables on `hdfs` and makes the views. Raises KeyError for an unknown dialect."""
    way, root = DIALECTS[dialect], f"{hdfs.rstrip('/')}/artimon"
    tables = "\n".join(way.opening.format(table=table, uri=f"{root}/{table}") for table in TABLES)
    head = [way.head] if way.head else []
    return "\n\n".join([*head, tables, *(f"{statement};" for statement in view_statements(dialect))]) + "\n"
