"""The limits that the documents state are those of the code."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from artimon.model.batch import MAX_BYTES, MAX_SAMPLES
from artimon.model.hash_routing import DEFAULT_LANES
from artimon.rawtable.table_state import FORGET_MS
from artimon.runtime.machine_memory import MEMORY_SHARE
from artimon.stack.topics import TOPICS
from pipeline.collector.collector import FRAME_BYTES
from pipeline.collector.collector_process import MAX_CONNECTIONS
from pipeline.compaction import plan
from pipeline.spark import append_pace as pace
from pipeline.spark.spark_settings import SparkConfig
from pipeline.wal.log_core import QUOTA_BYTES
from query_dsl.evaluation.offline import LiteralStore
from query_dsl.evaluation.planner import MAX_POINTS
from query_dsl.evaluation.pushed_reduction import MAX_PUSHED_SERIES
from query_dsl.evaluation.windows import MAX_WINDOW_COLUMNS
from query_dsl.functions import fills, points_texts, reducers_values, registry, seasonal_deviation
from query_dsl.functions.points_casts import MAX_TEXTS
from query_dsl.stores.history import sample_query as question
from query_dsl.stores.query_limits import DEFAULT_LIMITS, LEAST_MEMORY, Limits
from query_dsl.tree import selector
from query_dsl.tree.prescan import MAX_DIGITS, MAX_LENGTH, MAX_NESTING, MAX_OPERATORS
from query_dsl.tree.query_errors import MAX_ECHO, WIDTH
from sources.delivery.source_config import SourceConfig
from sources.state.retention_rules import MAX_CLASSES
from tests.docs.test_architecture import ROOT
from varstore.cells.cell_file import FREE_BYTES
from varstore.index import shard_limits as limits
from varstore.index.shard_limits import MAX_FITTED_CAPACITY
from varstore.shard_process import ShardConfig

DAY_MS = 86_400_000


def default(config: type, name: str) -> int:
    """Return the default of a field of a dataclass."""
    found: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(config)}
    return int(found[name])


OPERATIONS = {
    "batch": f"{MAX_SAMPLES:,} samples, {MAX_BYTES // 1024} KiB",
    "series of one source": f"{default(SourceConfig, 'max_series'):,}",
    "log of an agent": f"{QUOTA_BYTES // 2**30} GiB",
    "lanes of an agent": f"{DEFAULT_LANES}",
    "partitions of the topic": f"{TOPICS[0].partitions} at first",
    "call to a collector": f"{FRAME_BYTES / 2**20:g} MiB",
    "messages of an append": f"{default(SparkConfig, 'raw_messages'):,}",
    "agents of a collector": f"{MAX_CONNECTIONS:,} connections",
    "age of a batch": f"{FORGET_MS // DAY_MS} days before its append",
    "Kafka keeps what the table holds": f"{default(SparkConfig, 'kafka_keep_s') // 3600} h",
    "series of a shard": f"at most {MAX_FITTED_CAPACITY:,}",
    "series of one name in a shard": f"a quarter of its capacity, at least {limits.SERIES_PER_NAME:,} (`--name-limit`)",
    "packed buckets of a shard on disk": f"{default(ShardConfig, 'disk_bytes') // 2**30} GiB (`--disk`), and"
    f" {FREE_BYTES // 2**20} MiB stay free",
    "retention classes": f"{MAX_CLASSES}",
    "history in one answer": f"{question.LEAST_SAMPLES:,} samples, {DEFAULT_LIMITS.series:,} series",
    "live files": f"{pace.HOUR_FILES} of each class in the open hour, {plan.HOUR_FILES} in a closed hour,"
    f" {plan.DAY_FILES} in a day",
}
VARSTORE = {
    "series of one name": f"a quarter of the capacity, at least {limits.SERIES_PER_NAME:,}"
    " (`artimon shard --name-limit`)",
    "label names": f"{limits.LABELS:,}",
    "memory": f"{MEMORY_SHARE:.0%}".replace("%", " %"),
}
QUERY = {
    "length of a query": f"{MAX_LENGTH:,} characters",
    "brackets": f"{MAX_NESTING} deep",
    "operators and calls": f"{MAX_OPERATORS}",
    "a number in a query": f"{MAX_DIGITS:,} digits",
    "a regular expression": f"{selector.MAX_REGEX:,} characters",
    "matchers of a selector": f"{selector.MAX_MATCHERS}",
    "series of a fetch": f"{DEFAULT_LIMITS.series:,}; {MAX_PUSHED_SERIES:,} where",
    "points of an answer": f"{MAX_POINTS:,}",
    "buckets that a window function or a filler reads": f"{MAX_WINDOW_COLUMNS:,} a series",
    "a text that `replace` makes": f"{points_texts.MAX_TEXT:,} characters",
    "new texts of one function": f"{MAX_TEXTS:,}",
    "`count_values`": f"{reducers_values.MAX_SERIES:,} series, {reducers_values.MAX_CELLS:,} values",
    "`deviation`": f"{seasonal_deviation.MAX_WEEKS} weeks, {seasonal_deviation.MAX_CELLS:,} values",
    "time of a query over `offline`": f"{LiteralStore.default_limits.seconds:g} s",
    "what an error shows of a query": f"{MAX_ECHO + WIDTH} characters",
}
GIB, MIB = 2**30, 2**20
OF_ONE_QUERY = {
    "`series`": f"{DEFAULT_LIMITS.series:,}",
    "`samples`": f"{DEFAULT_LIMITS.samples:,}",
    "`memory_bytes`": f"{DEFAULT_LIMITS.memory_bytes // GIB} GiB; in a session a fifth of the memory, at least"
    f" {LEAST_MEMORY // GIB} GiB",
    "`text_bytes`": f"{DEFAULT_LIMITS.text_bytes // MIB} MiB",
    "`seconds`": f"{DEFAULT_LIMITS.seconds or 'none'} (`offline`: {LiteralStore.default_limits.seconds:g})",
    "`soft`": f"{DEFAULT_LIMITS.soft}",
}
PROMISED = {"open hour": (pace.HOUR_FILES, 120), "closed hour": (plan.HOUR_FILES, 4), "day": (plan.DAY_FILES, 8)}


def limit_rows(path: str) -> dict[str, str]:
    """First cell -> second cell of every row of the table under "Limits"."""
    text = (ROOT / "docs" / path).read_text().split("\n## Limits\n")[1].split("\n## ")[0]
    found = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return {cells[0].strip(): cells[1].strip() for cells in found[2:]}


@pytest.mark.parametrize(
    ("path", "known"),
    [("operations.md", OPERATIONS), ("varstore.md", VARSTORE), ("query.md", QUERY), ("engines.md", OF_ONE_QUERY)],
)
def test_limits_are_those_of_the_code(path: str, known: dict[str, str]) -> None:
    told = limit_rows(path)
    assert {what: told.get(what) for what, limit in known.items() if limit not in told.get(what, "")} == {}


@pytest.mark.parametrize(
    ("path", "known"), [("operations.md", OPERATIONS), ("query.md", QUERY), ("engines.md", OF_ONE_QUERY)]
)
def test_the_documents_state_no_other_limits(path: str, known: dict[str, str]) -> None:
    assert set(limit_rows(path)) == set(known)


def test_every_limit_of_a_query_is_told() -> None:
    assert {f"`{field.name}`" for field in dataclasses.fields(Limits)} == set(OF_ONE_QUERY)
    assert fills.MAX_COLUMNS == MAX_WINDOW_COLUMNS
    assert registry.MAX_REGEX == selector.MAX_REGEX


@pytest.mark.parametrize("period", PROMISED)
def test_live_files_stay_within_what_was_promised(period: str) -> None:
    """These figures are a promise to readers of the table; they do not move with the code."""
    limit, promised = PROMISED[period]
    assert limit <= promised
