"""Programs of ours in processes that are forked from one that has imported their packages: a start costs some
milliseconds of the processor instead of one or two seconds. All else is as with `python -m`: arguments, environment,
folder, output, exit code, signals."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["pytest", "alerts.engine_process", "artimon.cli.process_wiring", "artimon.cli.program", "query_dsl"]
)


def run_forked(
    module: str, *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, timeout: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """`python -m MODULE WORDS…` until its end, as subprocess.run does it; after the timeout it is killed."""
    argv = [module, *words]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("stdout", "stderr")]
        process = PROCESSES.Process(target=_begin, args=(argv, files, dict(env or os.environ), cwd), daemon=True)
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(argv, timeout)
        out, err = (file.read_text() for file in files)
        code = process.exitcode
        process.close()
    return subprocess.CompletedProcess(argv, code, out, err)


def _begin(argv: list[str], files: list[Path], env: Mapping[str, str], cwd: Path | None) -> None:
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(env)
    if cwd:
        os.chdir(cwd)
    sys.argv = argv
    runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
