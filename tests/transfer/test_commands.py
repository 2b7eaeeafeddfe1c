"""The commands in this process, on a local folder; tests/history/test_transfer_commands.py calls them on HDFS."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from artimon.cli.program import app
from tests.transfer.importing import START_MS, dump_text, samples


def command(hdfs: str, data: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["history", *words, "--hdfs", hdfs, "--data", str(data)])


def test_import_and_delete(hdfs: str, tmp_path: Path) -> None:
    file = tmp_path / "a.dump"
    file.write_text(dump_text() + "no sample\n")
    missing = str(tmp_path / "missing.dump")
    done = command(hdfs, tmp_path, "import", missing, str(file))
    assert done.exit_code == 1
    assert f"{file}: 150 samples of 5 series, 5 days" in done.stdout
    assert "refused: 1 bad line" in done.stdout
    assert f"{file}:151: want {{labels}} value time: 'no sample'" in done.stderr
    assert f"{missing}: FileNotFoundError" in done.stderr
    assert command(hdfs, tmp_path, "import", str(file)).stdout == f"{file}: imported before, nothing to do\n"
    chosen = ['req_total{host="h1"}', "--from", "1970-01-01T00:00:00Z"]
    dry = command(hdfs, tmp_path, "delete", *chosen)
    assert "would delete 30 samples of 1 series" in dry.stdout
    assert len(samples(hdfs)) == 150
    token = re.findall(r"--confirm (\S+)", dry.stdout)[0]
    done = command(hdfs, tmp_path, "delete", *chosen, "--confirm", token)
    assert "deleted 30 samples, rewrote 5 files, removed 1 series" in done.stdout
    assert (tmp_path / "audit.log").read_text().count("history.delete") == 2
    version = re.findall(r"--verify (\d+)", done.stdout)[0]
    proof = command(hdfs, tmp_path, "delete", "--verify", version)
    assert (proof.exit_code, proof.stdout.count("remains: ")) == (1, 6)
    again = command(hdfs, tmp_path, "delete", *chosen, "--confirm", token)
    assert (again.exit_code, "no series fits" in again.stderr) == (1, True)
    assert len(samples(hdfs, after=START_MS - 1)) == 120


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["delete"], "SELECTOR and --from"),
        (["delete", "x"], "SELECTOR and --from"),
        (["delete", "x", "--from", "0", "--confirm", "abc"], "is not a token"),
        (["delete", "x", "--from", "0", "--verify", "3"], "SELECTOR and --from"),
        (["import", "x.txt"], "give --format"),
        (["import", "x.dump", "--mapping", "/nonexistent"], "/nonexistent:1:1: cannot be read: No such file"),
        (["import", "x.csv", "--source", ""], "a source has 1 to"),
        (["export", "x", "--from", "0"], "give --format"),
        (["export", "x", "--from", "0", "-o", "x.doc"], "give --format"),
    ],
)
def test_wrong_usage(hdfs: str, tmp_path: Path, words: list[str], told: str) -> None:
    done = command(hdfs, tmp_path, *words)
    assert done.exit_code == 2
    assert told in " ".join(done.stderr.replace("│", "").split())
