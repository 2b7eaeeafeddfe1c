"""Run all benchmarks one after another: a machine line first, then every line once.

`machine`: date, commit, processor, memory, versions. `benchmark.NAME` ends each benchmark: seconds, arguments, load
averages at its start and end. A benchmark, line or peer that fails becomes a line with `failed` and the reason; the
others continue, and the exit code is 1. With FILE each line is also appended to it; `--resume` skips the benchmarks
that FILE holds for the same commit; `--renew` measures the chosen ones again and keeps the others of any commit.
`artimon bench page FILE` makes the page from FILE.

artimon bench all --json [FILE] [--only increment,poll] [--resume|--renew] [--small|--long] [--list]
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from benchmarks.common import show
from benchmarks.suite.machine import describe, load
from benchmarks.suite.plan import PLAN, Entry, Form
from benchmarks.suite.results import RUN, Record, Results, ResultsError, failed, parse

LIMIT = 4.0
"""Interrupt a benchmark after this multiple of its planned duration, but not before LEAST_S."""
LEAST_S = 900.0
STOP_S = 90.0
"""Grace period in which an interrupted benchmark stops its servers."""
TAIL = 30


def run_entry(entry: Entry, form: Form, results: Results) -> None:
    """Run one benchmark in a separate process; its lines go to `results` and to standard output."""
    command = [sys.executable, "-m", entry.module, *entry.arguments_of(form)]
    print(f"# {' '.join(command[2:])}", file=sys.stderr, flush=True)
    before, began = load(), time.monotonic()
    tail: deque[str] = deque(maxlen=TAIL)
    problems: list[str] = []
    # With this variable each process would compile what it imports: not what users have.
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment
    ) as child:
        limit_s = max(LEAST_S, entry.minutes_of(form) * 60 * LIMIT)
        limit = threading.Timer(limit_s, _interrupt, [child, problems, f"interrupted after {limit_s:.0f} s"])
        limit.start()
        errors = threading.Thread(target=_tee, args=(child.stderr, tail))
        errors.start()
        try:
            for line in child.stdout or ():
                _take(line, entry, results, problems)
        except KeyboardInterrupt:
            _interrupt(child, problems, "interrupted")
            raise
        finally:
            limit.cancel()
            child.wait()
            errors.join(STOP_S)
    took = time.monotonic() - began
    if child.returncode and not any(map(failed, results.of(entry.name))):
        problems.append(_reason(tail, child.returncode))
    for name in entry.promised_of(form) - {record["name"] for record in results.of(entry.name)}:
        _add(results, entry, {"name": name, "failed": problems[0] if problems else "was not printed"}, problems)
    end: Record = {
        "name": f"{RUN}{entry.name}",
        "value": round(took, 1),
        "unit": "s",
        "arguments": list(entry.arguments_of(form)),
    }
    end |= {"load_start": before, "load_end": load(), **results.run}
    if problems:
        end["failed"] = "; ".join(problems)
    _add(results, entry, end, problems)


def _take(line: str, entry: Entry, results: Results, problems: list[str]) -> None:
    """Add one output line to the results; a line that is not a record is only shown."""
    record = parse(line)
    if record is None:
        print(f"# {line.rstrip()}", file=sys.stderr, flush=True)
    else:
        _add(results, entry, record, problems)


def _add(results: Results, entry: Entry, record: Record, problems: list[str]) -> None:
    record = {**record, "benchmark": entry.name}
    try:
        results.add(record)
    except ResultsError as error:
        problems.append(str(error))
        return
    show(record)


def _tee(errors: IO[str] | None, tail: deque[str]) -> None:
    for line in errors or ():
        sys.stderr.write(line)
        sys.stderr.flush()
        if line.strip() and not line.startswith("#"):
            tail.append(line.strip())


def _reason(tail: deque[str], code: int) -> str:
    return f"exit code {code}: {tail[-1] if tail else 'nothing on standard error'}"


def _interrupt(child: subprocess.Popen[str], problems: list[str], reason: str) -> None:
    """Send SIGINT, so that it stops its servers; kill its process group after the grace period."""
    problems.append(reason)
    child.send_signal(signal.SIGINT)
    try:
        child.wait(STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)


def chosen(only: str | None) -> list[Entry]:
    """Return the entries of the plan by comma-separated names. Raises ResultsError."""
    if not only:
        return list(PLAN)
    wanted, names = set(only.split(",")), [entry.name for entry in PLAN]
    if unknown := wanted - set(names):
        raise ResultsError(f"--only: {', '.join(sorted(unknown))} is none of {', '.join(names)}")
    return [entry for entry in PLAN if entry.name in wanted]


def run(options: Any) -> int:
    """Run the chosen benchmarks and return the exit code."""
    entries = chosen(options.only)
    if options.list:
        for entry in entries:
            command = " ".join((entry.module, *entry.arguments_of(options.form)))
            print(f"# {entry.name:<18} {entry.minutes_of(options.form):4.1f} min  {command}")
        return 0
    if options.file and options.file.exists() and not (options.resume or options.renew):
        raise ResultsError(
            f"{options.file} exists: continue it with --resume, measure again with --renew, or choose another file"
        )
    results = Results(options.file, {**describe(), "form": options.form})
    if options.renew:
        results.renew(entry.name for entry in entries)
    elif options.resume:
        results.resume()
    results.begin()
    for record in results.records:
        show(record)
    done = {record.get("benchmark") for record in results.records}
    for entry in entries:
        if entry.name not in done:
            run_entry(entry, options.form, results)
    return int(any(map(failed, results.records)))


def main(args: Sequence[str]) -> int:
    """Run the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="artimon bench all", description=__doc__, formatter_class=form)
    parser.add_argument("file", type=Path, nargs="?", help="also append the lines to this file")
    parser.add_argument("--only", help="comma-separated names (--list shows them)")
    parser.add_argument("--resume", action="store_true", help="continue FILE: skip its benchmarks of this commit")
    parser.add_argument("--renew", action="store_true", help="replace these benchmarks in FILE, keep its others")
    sizes = parser.add_mutually_exclusive_group()
    for size, text in (
        ("small", "a trial run with small sizes, not for publication"),
        ("long", "30 minutes of lag and of dashboards, 60 of backlog, 200 agents"),
    ):
        sizes.add_argument(f"--{size}", dest="form", action="store_const", const=size, default="usual", help=text)
    parser.add_argument("--list", action="store_true", help="print the plan and exit")
    options = parser.parse_args(args)
    try:
        return run(options)
    except ResultsError as error:
        print(f"artimon bench all: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
