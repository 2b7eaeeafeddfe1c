"""Arrow begins without pandas in our own processes, and knows it once something converts to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from artimon.model.clock import ManualClock
from query_dsl.tree.times import format_time
from tests.history.engine_world import put, some_series
from tests.history.world import HistoryWorld
from tests.query_dsl.test_pushdown import NOW, T
from tests.spark.local_files import local_files

READS = """
import sys
from artimon.cli.program import main
try:
    main(["history", "v1", "--from", sys.argv[2], "--to", sys.argv[3], "--hdfs", sys.argv[1], "--csv"])
except SystemExit as end:
    assert not end.code, end.code
assert "pyarrow" in sys.modules
assert "pandas" not in sys.modules
"""
ASKS = """
import sys
from artimon.runtime.process_setup import set_up_libraries
from query_dsl import evaluate, parse
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
set_up_libraries()
with History(sys.argv[1]) as history:
    found = evaluate(parse("fetch('v1').bucketize('mean', '1h').range('3h')"), HistoryStore(history), int(sys.argv[4]))
assert len(found)
assert "pandas" not in sys.modules
"""
PROCESSES = (
    "varstore.shard_process",
    "pipeline.collector.collector_process",
    "pipeline.compaction.compactor_process",
    "pipeline.spark.application",
    "pipeline.spark.worker_daemon",
    "alerts.engine_process",
)
CONVERTS = """
import sys
import pyarrow as pa
from artimon.runtime.process_setup import set_up_libraries
set_up_libraries()
table = pa.table({"n": [1, 2], "t": ["a", None]})
assert "pandas" not in sys.modules
frame = table.to_pandas()
import pandas as pd
assert isinstance(frame, pd.DataFrame)
assert pa.Table.from_pandas(frame, preserve_index=False).to_pylist() == table.to_pylist()
assert pa.array(pd.Series([1.5, float("nan")])).null_count == 1
"""


def run(code: str, *arguments: object) -> None:
    told = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(told, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_history_is_read_without_pandas(tmp_path: Path) -> None:
    with local_files(ManualClock(NOW)):
        put(HistoryWorld(f"file://{tmp_path}/files"), some_series(11, 5, 120))
    for code in (READS, ASKS):
        run(code, f"file://{tmp_path}/files", format_time(T - 7_200_000), format_time(T), NOW)


def test_conversions_import_it() -> None:
    run(CONVERTS)


def test_no_process_imports_pandas_when_it_starts() -> None:
    for module in PROCESSES:
        program = f"import sys, {module}; assert 'pandas' not in sys.modules"
        subprocess.run([sys.executable, "-c", program], check=True)


def test_the_api_imports_neither_the_alert_engine_nor_a_client_of_logins() -> None:
    program = "import sys, artimon.api.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert not {"alerts.engine_process", "authlib", "kafka"} & set(done.stdout.split())
