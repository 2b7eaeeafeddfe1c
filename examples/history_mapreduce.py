"""Map and reduce over history in your own Python: the greatest value of a variable by hour and label, on all cores.

    python examples/history_mapreduce.py rack.temp --by rack --from now-7d

Spark gives each task batches of samples as pandas frames; `candidates` maps a batch to few rows, `greatest` reduces
the rows of one hour and label to one. Put your own functions in their place. Only files that can hold the samples are
read, and no sample comes to this process.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd

from query_dsl.stores.history.engine import History

HOURLY = "hour timestamp, part string, value double, samples long"


def candidates(by: str, batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Map: of each batch the greatest value by hour and label, and how many samples that stands for."""
    for batch in batches:
        value = batch["double"].fillna(batch["integer"].astype("float64"))
        rows = pd.DataFrame(
            {
                "hour": batch["time"].dt.floor("h"),
                "part": [dict(labels).get(by, "") for labels in batch["labels"]],
                "value": value,
            }
        ).dropna(subset=["value"])  # rows that end a series have no value
        yield rows.groupby(["hour", "part"], as_index=False).agg(value=("value", "max"), samples=("value", "size"))


def greatest(rows: pd.DataFrame) -> pd.DataFrame:
    """Reduce: one row of all those of an hour and label."""
    first = rows.iloc[0]
    return pd.DataFrame(
        [{"hour": first["hour"], "part": first["part"], "value": rows["value"].max(), "samples": rows["samples"].sum()}]
    )


def hourly_maximum(history: History, selector: str, by: str, start: object, end: object) -> Any:
    """A Spark frame: hour, part (value of the label `by`), value, samples."""
    mapped = history.frame(selector, start, end).mapInPandas(partial(candidates, by), HOURLY)
    return mapped.groupBy("hour", "part").applyInPandas(greatest, HOURLY).orderBy("hour", "part")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("selector")
    parser.add_argument("--by", default="host", help="a label")
    parser.add_argument("--from", dest="start", default="now-24h")
    parser.add_argument("--to", dest="end", default="now")
    parser.add_argument("--hdfs", default=os.environ.get("ARTIMON_HDFS", "hdfs://127.0.0.1:8020"))
    given = parser.parse_args()
    with History(given.hdfs) as history:
        rows = hourly_maximum(history, given.selector, given.by, given.start, given.end)
        rows.toPandas().to_csv(sys.stdout, index=False)


if __name__ == "__main__":
    main()
