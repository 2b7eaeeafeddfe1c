"""The tab key in IPython, in an IPython of its own; bars that show how far a question is; interruption."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from artimon.progress_bar import NotebookDisplay, ProgressBar, TerminalDisplay

ROOT = Path(__file__).parents[2]
BEGIN = """
import json, sys
from artimon import tab_completion
from artimon.model.clock import ManualClock
from artimon.session import Session
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl.plain_store import MINUTE, PlainStore

def session(*names):
    store = PlainStore()
    for name in names:
        store.add(name, {"rack": "r1"}, [(MINUTE, 1.0), (2 * MINUTE, 2.0)])
    return Session(store, "nowhere", ManualClock(2 * MINUTE + SETTLE_MS))
"""
TAB = """
assert tab_completion.install(session("x")) is False
from IPython.core.completer import provisionalcompleter
from IPython.testing.globalipapp import start_ipython
ip = start_ipython()
ip.Completer.use_jedi = False
first, second = session("load"), session("disk.used", "disk.size")
assert tab_completion.install(first) and tab_completion.install(second)
ip.user_ns.update(s=second, q=second.fetch("disk.used"))
found = {}
with provisionalcompleter():
    for code in json.loads(sys.argv[1]):
        found[code] = [code[: c.start] + c.text + code[c.end :] for c in ip.Completer.completions(code, len(code))]
second.close()
with provisionalcompleter():
    closed = list(ip.Completer.completions('s.fetch("di', 11))
print(json.dumps([found, len(ip.Completer.custom_matchers), [c.text for c in closed if "disk" in c.text]]))
"""


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": os.devnull}
    command = [sys.executable, "-W", "ignore", "-c", BEGIN + program, *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)


def test_the_tab_key_completes_inside_texts() -> None:
    wanted = {
        'x = 1\ny = s.fetch("disk.u': ['x = 1\ny = s.fetch("disk.used'],
        's["di': ['s["disk.size', 's["disk.used'],
        's.find("disk.used{ra': ['s.find("disk.used{rack'],
        "s.fetch('disk.used').sum(by=['ra": ["s.fetch('disk.used').sum(by=['rack"],
        "s.fetch('disk.used').map('predi": ["s.fetch('disk.used').map('predict_linear"],
        "s.fetch('zzz": [],
    }
    done = run(TAB, json.dumps([*wanted, "q.predi"]))
    assert done.returncode == 0, done.stderr
    found, matchers, closed = json.loads(done.stdout.splitlines()[-1])
    methods = found.pop("q.predi")
    assert found == wanted
    assert any(one.endswith("predict_linear") for one in methods)
    assert matchers == 1  # the newest session's alone
    assert closed == []


def test_expressions_list_their_functions() -> None:
    from query_dsl import fetch
    from query_dsl.language.methods import METHODS

    assert set(METHODS) <= set(dir(fetch("x")))
    assert "weighted" in str(METHODS["ewma"].__doc__)


INTERRUPTED = """
one = session("x")
def stuck(times, values, labels):
    print("running", flush=True)
    while True:
        pass
try:
    one.query(one.fetch("x").map(stuck, "1m"))
except KeyboardInterrupt:
    import threading
    threads = [t for t in threading.enumerate() if "own-function" in t.name]
    for one_thread in threads:
        one_thread.join(60)
    left = [t.name for t in threads if t.is_alive()]
    print(json.dumps([left, one.query("fetch('x').at('now')").latest()]))
"""


def test_an_interruption_ends_an_own_function_and_the_session_goes_on() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", BEGIN + INTERRUPTED]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1]) == [[], [2.0]]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal_is_wiped() -> None:
    out = Screen()
    shown = TerminalDisplay(out)
    shown.show(0.5, "3 of 6 files")
    assert out.getvalue() == f"\r[{'#' * 15}{'.' * 15}]  50% 3 of 6 files"
    shown.clear()
    assert out.getvalue().endswith("\r" + " " * 50 + "\r")


def test_a_bar_elsewhere_says_nothing() -> None:
    out = io.StringIO()
    shown = TerminalDisplay(out)
    shown.show(0.5, "x")
    shown.clear()
    assert out.getvalue() == ""


def test_what_is_over_at_once_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Screen()
    with ProgressBar(out) as bar:
        bar(0.2, "soon")
    assert out.getvalue() == ""
    monkeypatch.setattr("artimon.progress_bar.DELAY_S", -1.0)

    def interrupted() -> None:
        with ProgressBar(out) as bar:
            bar(2.0, "late")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert "100% late" in out.getvalue()
    assert out.getvalue().endswith("\r")


def test_a_bar_in_a_notebook_is_html(capsys: pytest.CaptureFixture[str]) -> None:
    shown = NotebookDisplay()
    shown.show(0.25, "<b>1 of 4</b>")  # plain Python displays the text of the object
    shown.show(0.5, "2 of 4")
    shown.clear()
    assert "HTML object" in capsys.readouterr().out
