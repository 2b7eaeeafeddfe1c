"""Limits of the machine in the benchmarks, and the comparison of figures relative to them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from artimon.model.batch import BatchId
from artimon.model.batch_codec import encode_samples
from benchmarks import check, limits
from benchmarks.loads.samples import Source
from benchmarks.page import page
from benchmarks.suite.plan import PLAN
from benchmarks.suite.results import Record
from tests.compaction.builder import file_table

MACHINE: Record = {
    "name": "machine", "commit": "c0ffee", "dirty": False, "form": "usual", "date": "", "machine": "", "java": "17",
    "libraries": {}, "load": 0.0,
}  # fmt: skip


def limit_line(name: str, ratio: float) -> Record:
    return {"name": f"limit.{name}", "value": 1.0, "unit": "s", "peer": limits.MACHINE, "ratio": ratio}


def write(path: Path, *records: Record) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in (MACHINE, *records)))
    return path


def test_a_limit_tells_the_share_that_ours_reaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert limits.emit_limit("a.rate", 5.0, 20.0, "samples/s")["ratio"] == 0.25
    assert limits.emit_limit("a.time", 8.0, 2.0, "ms", more=False)["ratio"] == 0.25
    names = [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()]
    assert names == ["limit.a.rate", "limit.a.time"]


def test_every_limit_of_the_plan_belongs_to_a_figure_of_the_same_benchmark() -> None:
    for entry in PLAN:
        promised = {*entry.promised, *entry.sized}
        of = {name.removeprefix("limit.") for name in promised if name.startswith("limit.")}
        assert of <= promised, entry.name


def test_carried_bytes_arrive_and_leave_no_file(tmp_path: Path) -> None:
    assert limits.carried_mb_s(tmp_path, b"batch" * 1_000, 40, 8) > 0
    assert list(tmp_path.iterdir()) == []


def test_plain_loops_measure_something(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1_000_000))
    assert limits.file_read_s([tmp_path / "file"]) > 0
    assert limits.bucket_rate(3_000, 1_500) > 0
    assert limits.encoded_rate(tmp_path, 60_000) > 0
    assert limits.lines_rate("a 1\nb 2.5\n" * 1_000) > 0
    assert limits.series_rate("1 a{b=c,d=e} 1\n2 a{b=c,d=f} 2.5\n" * 1_000) > 0
    assert limits.file_write_s(tmp_path / "new", 3_000_000) > 0
    assert limits.fetched_s([(tmp_path / "file").as_uri()]) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_limits_of_polled_batches_and_of_an_import_leave_no_file(tmp_path: Path) -> None:
    poll = Source(1, np.random.default_rng(1), 1_000).poll(60_000)
    batch = encode_samples(BatchId("a", 1, 0, 0), "s", bytes(16), 1_000, 60_000, "", poll)
    assert limits.columns_of(batch.data).column("series").to_pylist() == poll.fingerprint.tolist()
    assert limits.polled_rate(tmp_path, batch.data, 16, 4, agents=2) > 0
    export = tmp_path / "export"
    export.write_bytes(b'{"metric":{},"values":[1,2],"timestamps":[3,4]}\n' * 10)
    assert limits.imported_rate(export, tmp_path) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_hours_are_reduced_from_files_of_the_table() -> None:
    made = file_table([(1, n, hour * 3_600_000 + poll, poll) for n in (1, 2) for hour in (0, 1) for poll in range(5)])
    sink = pa.BufferOutputStream()
    pq.write_table(made, sink)
    assert limits.folded_rate([sink.getvalue().to_pybytes()]) > 0


def test_entropy_is_that_of_independent_steps() -> None:
    assert limits.entropy_bytes(np.arange(256)) == pytest.approx(1.0)
    assert limits.entropy_bytes(np.array([1, 1, 1, 1])) == 0.0


@pytest.mark.parametrize(
    ("now", "code", "said"), [(0.46, 0, "0 are worse"), (0.44, 1, "pipeline: 0.44 of its limit, 0.5 before: 12% worse")]
)
def test_a_figure_that_is_worse_by_more_than_a_tenth_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], now: float, code: int, said: str
) -> None:
    committed = write(tmp_path / "old", limit_line("pipeline", 0.5), limit_line("gone", 0.5))
    found = write(tmp_path / "new", limit_line("pipeline", now), limit_line("more", 0.1))
    assert check.main([str(found), "--committed", str(committed)]) == code
    assert said in capsys.readouterr().out


def test_results_without_limits_are_an_error_not_a_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    committed = write(tmp_path / "old")
    assert check.main([str(committed), "--committed", str(committed)]) == 2
    assert check.main([str(tmp_path / "none"), "--committed", str(committed)]) == 2
    assert "no line of" in capsys.readouterr().err


def test_the_page_opens_with_the_ratios() -> None:
    ours = {"name": "pipeline", "value": 5.0, "unit": "samples/s (both)", "peer": "flume", "ratio": 2.0}
    failed = {"name": "other", "value": None, "unit": "", "failed": "no server"}
    apart = [{"name": name, "value": 5.0, "unit": "s", "peer": "flume", "ratio": 3.0} for name in ("bare", "broken")]
    bare = {"name": "limit.bare", "value": 1.0, "unit": "s", "ratio": None}
    broken = {"name": "limit.broken", "value": None, "unit": "", "ratio": None, "failed": "no disk"}
    lines = [ours, limit_line("pipeline", 0.25), limit_line("other", 0.5), failed, *apart, bare, broken]
    text = page([MACHINE, *lines], "{{ratios}}\n")
    assert "| `pipeline` | 5 samples/s | 0.25 | 2 x flume |" in text
    assert "`other`" not in text
    assert "| `bare` | 5 s |  | 3 x flume |" in text, "a limit without a ratio has not failed"
    assert "| `broken` | 5 s | failed | 3 x flume |" in text
