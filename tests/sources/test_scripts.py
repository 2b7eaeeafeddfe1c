"""Scripts that the agent runs at a period: their output, and each way to fail."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.labels import parse_canonical
from artimon.model.values import Value
from sources.artimon_source import ArtimonSource
from sources.scrape.script.script_source import run_script
from sources.targets.script_target import ScriptTarget
from tests.sources.helpers import HOST, KeepingSink, running
from tests.waiting import eventually, until

NOWHERE = "127.0.0.1:1"
SOURCE, AGENT = f"script/{HOST}/job", f"agent/{HOST}/agent1"
Test = Callable[[ArtimonSource, KeepingSink], Awaitable[None]]


def with_script(folder: Path, code: str, test: Test, **more: Any) -> None:
    """Run an agent that runs a Python program every half second."""

    async def run() -> None:
        sink, file, program = KeepingSink(), folder / "sources.yaml", folder / "job.py"
        program.write_text(code)
        script = {"name": "job", "command": [sys.executable, "-I", "-S", str(program)], **more}
        file.write_text(json.dumps({"scripts": [script]}))
        async with running(NOWHERE, folder / "agent", sink, sources=file, period_ms=500) as source:
            await test(source, sink)

    asyncio.run(run())


def last(sink: KeepingSink, name: str, source: str = SOURCE) -> Value | None:
    found = [value for text, _, _, value in sink.samples(source) if parse_canonical(text)[0] == name]
    return found[-1] if found else None


def named(source: ArtimonSource, text: str) -> bool:
    return any(text in problem for problem in source.figures()["problems"])


NOW = "import os, sys, time; now = int(time.time() * 1000)\n"


def test_lines_count_once_for_each_time(tmp_path: Path) -> None:
    """Types, kinds and refusals are those of drop-in files; the labels are those of the host and the script."""
    code = f"""{NOW}
print('# kind jobs.done counter')
print(f'{{now}} jobs.done{{{{queue=a}}}} {{now // 1000}}')
print('{SYSTEM_CLOCK.now_ms()} jobs.fixed 7')
print(f'{{now}} jobs.state "all done"')
print('nonsense')
"""

    async def test(source: ArtimonSource, sink: KeepingSink) -> None:
        def runs() -> int:
            return sum(text.startswith("jobs.done") for text, *_ in sink.samples(SOURCE))

        await until(lambda: runs() >= 3, "three runs")
        samples = sink.samples(SOURCE)
        assert len([text for text, *_ in samples if text.startswith("jobs.fixed")]) == 1
        assert last(sink, "jobs.state") == "all done"
        (text,) = {text for text, *_ in samples if text.startswith("jobs.done")}
        assert parse_canonical(text)[1] == {"queue": "a", "context": "job", "host": HOST, "team": "x"}
        assert source.figures()["refused"] == {"bad line": 1}
        assert named(source, "script job: bad line: line 5: begins with 'nonsense'")
        await until(lambda: last(sink, "artimon.endpoint.up", AGENT) == 1, "up = 1")

    with_script(tmp_path, code, test, labels={"team": "x"})


def test_a_page_of_prometheus(tmp_path: Path) -> None:
    code = "print('# TYPE done_total counter'); print('done_total{queue=\"a\"} 5'); print('# EOF')"

    async def test(source: ArtimonSource, sink: KeepingSink) -> None:
        await until(lambda: len(sink.samples(SOURCE)) >= 2, "two runs")
        text, time_ms, birth_ms, value = sink.samples(SOURCE)[0]
        assert parse_canonical(text) == ("done_total", {"queue": "a", "context": "job", "host": HOST})
        assert (birth_ms, value) == (1, 5.0)
        assert abs(time_ms - SYSTEM_CLOCK.now_ms()) < 60_000
        assert source.figures()["refused"] == {}

    with_script(tmp_path, code, test, format="prometheus")


PIDS = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(600)'])
with open({path!r}, 'a') as file:
    print(os.getpid(), child.pid, file=file, flush=True)
"""

BAD: list[tuple[str, str, str]] = [
    (
        "exit code",
        "import sys; print('1 a 1'); print('disk', 'gone', file=sys.stderr); sys.exit(3)",
        "ended with 3: disk gone",
    ),
    ("exit code", "import os; os.kill(os.getpid(), 9)", "ended by signal 9"),
    ("timeout", "import time; print('1 a 1', flush=True); time.sleep(600)", "within 1 s"),
    ("output too large", "while True: print('x' * 1000)", "more than 2048 bytes"),
    ("timeout", "import sys\nwhile True: print('x' * 1000, file=sys.stderr)", "within 1 s"),
]


def test_bad_runs_are_counted_and_named_and_nothing_of_them_is_taken(tmp_path: Path) -> None:
    def script(number: int, code: str) -> dict[str, Any]:
        program = tmp_path / f"bad{number}.py"
        program.write_text(code)
        command = [sys.executable, "-I", "-S", str(program)]
        return {"name": f"bad{number}", "command": command, "deadline": "1s", "max_bytes": "2KiB"}

    async def run() -> None:
        sink, file = KeepingSink(), tmp_path / "sources.yaml"
        scripts = [script(number, code) for number, (_, code, _) in enumerate(BAD)]
        file.write_text(json.dumps({"scripts": scripts}))
        async with running(NOWHERE, tmp_path / "agent", sink, sources=file, period_ms=500) as source:
            for number, (reason, _, text) in enumerate(BAD):
                about = f"script bad{number}: {reason}: "
                await until(lambda: named(source, about), about)  # noqa: B023
                assert named(source, text), text
            counts = source.figures()["poll_errors"]
            assert counts.keys() == {reason for reason, _, _ in BAD}
            await until(lambda: last(sink, "artimon.endpoint.up", AGENT) == 0, "up = 0")
            assert not any(p.source.startswith("script/") and len(p.samples) for p in sink.accepted)

    asyncio.run(run())


@pytest.mark.parametrize("output", ["", "print('x', flush=True)\n"])
def test_its_whole_process_group_is_killed_at_the_deadline(tmp_path: Path, output: str) -> None:
    """This includes a child that holds the output of an ended script, and one that ignores all signals but SIGKILL."""
    pids = tmp_path / "pids"
    code = PIDS.format(path=str(pids)) + output + ("time.sleep(600)" if output else "")

    async def test(source: ArtimonSource, sink: KeepingSink) -> None:
        await until(lambda: pids.exists() and len(pids.read_text().split()) >= 2, "a run that came so far")
        first = [int(pid) for pid in pids.read_text().split()[:2]]
        await until(lambda: not any(_alive(pid) for pid in first), "the end of both")
        await until(lambda: source.figures()["poll_errors"].get("timeout"), "the deadline")

    with_script(tmp_path, code, test, deadline="1s")
    left = [int(pid) for pid in pids.read_text().split()]
    eventually(lambda: not any(_alive(pid) for pid in left), "the end of what the agent started")


def test_who_escapes_with_the_output_does_not_hold_up_the_agent(tmp_path: Path) -> None:
    """A child with its own session is not killed; its pipes are closed at the deadline of each run."""
    pids = tmp_path / "pids"
    child = (
        "subprocess.Popen([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(60)'], start_new_session=True)"
    )
    code = f"import subprocess, sys\nprint({child}.pid, file=open({str(pids)!r}, 'a'))\n"

    async def test(source: ArtimonSource, sink: KeepingSink) -> None:
        await until(lambda: pids.exists() and pids.read_text(), "a run that came so far")
        await until(lambda: source.figures()["poll_errors"].get("timeout", 0) >= 1, "the deadline")
        before, runs = len(os.listdir("/proc/self/fd")), len(pids.read_text().split())
        await until(lambda: len(pids.read_text().split()) >= runs + 4, "four more")
        assert len(os.listdir("/proc/self/fd")) <= before + 4, "each run would keep two"

    try:
        with_script(tmp_path, code, test, deadline="400ms")
    finally:
        for pid in pids.read_text().split():
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(int(pid)).kill()


def test_a_deadline_in_the_midst_of_the_start_does_not_wait_for_who_escaped() -> None:
    """The loop is busy when the script starts: the deadline comes before its pipes are known; its child holds them."""

    def busy(rounds: int) -> None:
        threading.Event().wait(0.03)
        if rounds:
            asyncio.get_running_loop().call_soon(busy, rounds - 1)

    async def run(deadline_s: float) -> float:
        began = SYSTEM_CLOCK.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                asyncio.get_running_loop().call_soon(busy, 6)
                await run_script(ScriptTarget("x", ("sh", "-c", "setsid sleep 20 &")))
        return SYSTEM_CLOCK.monotonic() - began

    async def runs() -> list[float]:
        found = [await run(deadline_s) for deadline_s in (0.0, 0.01, 0.02, 0.03)]
        await until(lambda: len(asyncio.all_tasks()) == 1, "the starts have come to their end")
        return found

    assert max(asyncio.run(runs())) < 10


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_no_shell_and_a_small_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARTIMON_TEST_SECRET", "s3cret")
    code = f"{NOW}print(now, 'env', repr(' '.join(sorted(os.environ))))\nprint(now, 'args', repr(sys.argv[1]))\n"
    program = tmp_path / "job.py"
    command = [sys.executable, "-I", "-S", str(program), "$HOME; `ls` *"]

    async def test(source: ArtimonSource, sink: KeepingSink) -> None:
        await until(lambda: last(sink, "args"), "a run")
        assert last(sink, "args") == "$HOME; `ls` *"
        words = str(last(sink, "env")).split()
        assert "OWN" in words
        assert not any("ARTIMON" in word for word in words)

    with_script(tmp_path, code, test, command=command, environment={"OWN": "1"})


def test_what_cannot_be_started_is_named(tmp_path: Path) -> None:
    async def test(source: ArtimonSource, sink: KeepingSink) -> None:
        await until(lambda: source.figures()["poll_errors"].get("not started"), "the error")
        assert named(source, "/no/such/program")

    with_script(tmp_path, "", test, command=["/no/such/program"])


def test_its_series_end_when_it_fails_for_long_and_go_on_when_it_is_mended(tmp_path: Path) -> None:
    flag = tmp_path / "broken"
    code = f"{NOW}print(now, 'a', 1)\nsys.exit(os.path.exists({str(flag)!r}))\n"

    async def test(source: ArtimonSource, sink: KeepingSink) -> None:
        await until(lambda: last(sink, "a") == 1, "a run")
        flag.touch()
        await until(lambda: last(sink, "a") is None, "the end of its series")
        flag.unlink()
        await until(lambda: last(sink, "a") == 1, "its series again")

    with_script(tmp_path, code, test)


def test_a_period_of_its_own(tmp_path: Path) -> None:
    count = tmp_path / "count"
    code = f"{NOW}open({str(count)!r}, 'a').write('x')\nprint(now, 'a', 1)\n"

    async def test(source: ArtimonSource, sink: KeepingSink) -> None:
        await until(lambda: last(sink, "a") == 1, "a run")
        before = len([p for p in sink.accepted if p.source == AGENT])
        await until(lambda: len([p for p in sink.accepted if p.source == AGENT]) >= before + 3, "three periods")
        assert os.path.getsize(count) == 1

    with_script(tmp_path, code, test, period="1h")
