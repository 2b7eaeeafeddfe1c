"""`artimon history import`, `export` and `delete` on HDFS, as a user calls them."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

pytestmark = [pytest.mark.stack, pytest.mark.slow]
START_MS = 1_700_000_000_000


def command(hdfs: str, data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "artimon.cli", "history", *words, "--hdfs", hdfs, "--data", str(data)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def test_in_out_and_gone(hdfs: str, tmp_path: Path) -> None:
    place = f"{hdfs}/t{uuid.uuid4().hex[:10]}"
    polls = [(n, poll) for n in range(3) for poll in range(9)]
    lines = [f'{{__name__="req_total", host="h{n}"}} {poll} {START_MS + poll * 60_000}' for n, poll in polls]
    file, bad = tmp_path / "a.dump", tmp_path / "b.dump"
    file.write_text("\n".join(lines) + "\nno sample\n")
    bad.write_text("")
    done = command(place, tmp_path, "import", str(file), str(bad), str(tmp_path / "missing.dump"), "--jobs", "2")
    assert done.returncode == 1, done.stderr
    assert f"{file}: 27 samples of 3 series, 1 days" in done.stdout
    assert "refused: 1 bad line" in done.stdout
    assert f"{file}:28: want {{labels}} value time: 'no sample'" in done.stderr
    assert "missing.dump: FileNotFoundError" in done.stderr
    again = command(place, tmp_path, "import", str(file))
    assert (again.returncode, again.stdout) == (0, f"{file}: imported before, nothing to do\n"), again.stderr
    target = tmp_path / "x.om"
    done = command(place, tmp_path, "export", "req_total", "--from", "1970-01-01T00:00:00Z", "-o", str(target))
    assert done.returncode == 0, done.stderr
    assert target.read_text().count("req_total{") == 27
    chosen = ['req_total{host="h1"}', "--from", "1970-01-01T00:00:00Z"]
    dry = command(place, tmp_path, "delete", *chosen)
    assert "would delete 9 samples of 1 series" in dry.stdout, dry.stderr
    token = re.findall(r"--confirm (\S+)", dry.stdout)[0]
    done = command(place, tmp_path, "delete", *chosen, "--confirm", token)
    assert "deleted 9 samples, rewrote 1 files, removed 1 series" in done.stdout, done.stderr
    assert (tmp_path / "audit.log").read_text().count("history.delete") == 2
    version = re.findall(r"--verify (\d+)", done.stdout)[0]
    proof = command(place, tmp_path, "delete", "--verify", version)
    assert (proof.returncode, proof.stdout.count("remains: ")) == (1, 2)
    left = command(place, tmp_path, "req_total", "--from", "1970-01-01T00:00:00Z", "--csv")
    assert left.stdout.count("req_total{") == 18, left.stderr
    assert command(place, tmp_path, "delete", *chosen, "--confirm", token).returncode == 1
