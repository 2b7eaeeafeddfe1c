"""The views of artimon/rawtable/sql_views.py as lazy frames of Polars, of the same columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_KEY = ("source_id", "series")
_ABOUT = ("name", "labels", "source", "kind", "unit")
_WIDE = 2**64


@dataclass(frozen=True, slots=True)
class PolarsViews:
    """The views as polars.LazyFrame."""

    announced: Any
    samples: Any
    buckets: Any
    increases: Any


def make_views(pl: Any, raw: Any, rollups: Any, series: Any, sources: Any) -> PolarsViews:
    """Return the views over lazy frames of the four tables. `pl`: the module polars, which is optional."""
    announced, rows = _announced(pl, series, sources), _bucket_rows(pl, rollups)
    about = announced.select(*_KEY, *_ABOUT)
    return PolarsViews(
        announced,
        _samples(pl, raw.rename({"source": "source_id"}).join(about, on=_KEY)),
        _buckets(pl, rows).join(about, on=_KEY),
        _increases(pl, rows).join(about.filter(pl.col("kind") == "counter"), on=_KEY),
    )


def _announced(pl: Any, series: Any, sources: Any) -> Any:
    described = pl.col("labels", "type", "kind", "unit", "help").sort_by("last_seen").last()
    spans = pl.col("first_seen").min(), pl.col("last_seen").max(), pl.col("clash").any()
    newest = series.group_by("source", "series", "name").agg(described, *spans).filter(~pl.col("clash")).drop("clash")
    names = sources.rename({"id": "source_id"})
    return newest.rename({"source": "source_id"}).join(names, on="source_id")


def _samples(pl: Any, rows: Any) -> Any:
    kinds = ("integer", "double", "boolean", "string")
    type_ = pl.coalesce(*(pl.when(pl.col(kind).is_not_null()).then(pl.lit(kind)) for kind in kinds), pl.lit("ended"))
    value = pl.coalesce("double", *(pl.col(kind).cast(pl.Float64) for kind in ("integer", "boolean")))
    told = rows.with_columns(type=type_, value=value).rename({"string": "text", "integer": "whole"})
    return told.select("time", *_ABOUT, "type", "value", "text", "whole", "birth", "future", "keep", *_KEY)


def _bucket_rows(pl: Any, rollups: Any) -> Any:
    """Return the rows with their statistics; `whole` and `low` are exact integers."""

    def unsigned(name: str) -> Any:
        """Return a distance, which is stored modulo 2^64."""
        cell = pl.col(name).fill_null(0).cast(pl.Int128)
        return cell + pl.when(cell < 0).then(pl.lit(_WIDE, pl.Int128)).otherwise(pl.lit(0, pl.Int128))

    def folded(name: str, of_integers: Any, of_double: Any) -> Any:
        return pl.coalesce(f"{name}_double", of_double, of_integers.cast(pl.Float64)).alias(name)

    whole = pl.coalesce("integer", pl.col("boolean").cast(pl.Int64)).cast(pl.Int128)
    both = pl.col("low") + pl.col("high")
    twice = 2 * pl.col("rest").fill_null(0).cast(pl.Int128) + pl.col("count") * (both - both.abs() % 2)
    double = pl.col("double")
    return (
        rollups.filter(pl.col("count") > 0)
        .rename({"source": "source_id", "string": "text"})
        .with_columns(pl.col("level").cast(pl.Int32), whole=whole)
        .with_columns(low=pl.col("whole") - unsigned("below"), high=pl.col("whole") + unsigned("above"))
        .with_columns(
            pl.coalesce(double, pl.col("whole").cast(pl.Float64)).alias("last"),
            folded("min", pl.col("low"), double),
            folded("max", pl.col("high"), double),
            pl.coalesce("sum_double", double * pl.col("count"), twice.cast(pl.Float64) / 2).alias("sum"),
        )
    )


def _newest(pl: Any, *names: str) -> Any:
    """Return the values at the newest `last_time` of a group."""
    return pl.col(*names).sort_by("last_time").last()


def _buckets(pl: Any, rows: Any) -> Any:
    merged = rows.group_by(*_KEY, "level", "time").agg(
        pl.col("count", "sum").sum(),
        _newest(pl, "last", "text"),
        pl.col("min").min(),
        pl.col("max", "last_time").max(),
    )
    return merged.with_columns(mean=pl.col("sum") / pl.col("count"))


def _increases(pl: Any, rows: Any) -> Any:
    """Return the growth of each bucket; docs/query.md#increase-rate-and-delta has the rules."""
    merged = (
        rows.filter(pl.col("last").is_not_null())
        .group_by(*_KEY, "level", "birth", "time")
        .agg(
            pl.col("count").sum(),
            _newest(pl, "whole", "last"),
            pl.col("low", "min").min(),
            pl.col("last_time").max(),
        )
    )
    before = pl.col("birth", "last_time", "whole", "last").shift(1).over(*_KEY, "level", order_by=["birth", "time"])
    follow = merged.with_columns(
        before.name.prefix("previous_"), edge=pl.col("time") - pl.duration(seconds=3 * pl.col("level"))
    )
    near = (pl.col("previous_last_time") >= pl.col("edge")).fill_null(False)
    same = (pl.col("previous_birth") == pl.col("birth")).fill_null(False)
    exact = (pl.col("whole") - pl.col("previous_whole")).cast(pl.Float64)
    inside = pl.coalesce((pl.col("whole") - pl.col("low")).cast(pl.Float64), pl.col("last") - pl.col("min"))
    grown = (
        pl.when(same & near)
        .then(pl.coalesce(exact, pl.col("last") - pl.col("previous_last")))
        .when(~same & (near | (pl.col("birth") >= pl.col("edge"))))
        .then(pl.col("last"))
        .when(pl.col("count") > 1)
        .then(inside)
    )
    found = follow.with_columns(increase=grown).filter(pl.col("increase").is_not_null())
    return found.group_by(*_KEY, "level", "time").agg(pl.col("increase").sum())
