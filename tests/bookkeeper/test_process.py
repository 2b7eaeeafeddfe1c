"""Inside somebody else's program: import, names, absent ZooKeeper, instances, fork, quiet exit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pytest

from bookkeeper.process import instances
from bookkeeper.process.addresses import bracket_ipv6, choose_addresses, zookeeper_hosts
from bookkeeper.runtime.process_settings import SettingsError, fit_name, program_name, read_settings, validate_name
from tests.bookkeeper.polling import REPOSITORY, application, end, hear, rows, say

NOWHERE = "127.0.0.1:1"


def test_import_does_no_work(tmp_path: Path) -> None:
    """No thread, no socket, no file, no environment, none of the heavy modules; and it is fast."""
    script = """
import os, sys, threading
class Watched(dict):
    def __getitem__(self, key): raise AssertionError(key)
    get = __contains__ = __getitem__
before = set(sys.modules)
os.environ = Watched()
import bookkeeper
loaded = set(sys.modules) - before
assert not {m.partition('.')[0] for m in loaded} & {'thriftpy2', 'kazoo', 'artimon', 'socket', 'ssl', 'numpy'}, loaded
assert threading.active_count() == 1
bookkeeper.integer("n"); bookkeeper.describe("n", "help")
assert threading.active_count() == 1
print(os.listdir('.'))
"""
    process = application(script, tmp_path)
    assert hear(process) == "['app.py']"
    end(process)


def test_beside_an_application_with_the_same_module_names(tmp_path: Path) -> None:
    """The application's own model.py, api.py, labels.py, alerts/, pipeline/ are the ones it gets, and polls work."""
    for name in ("model", "api", "labels", "clock", "settings", "service"):
        (tmp_path / f"{name}.py").write_text("mine = True\n")
    for name in ("alerts", "pipeline", "sources", "varstore", "query_dsl"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("mine = True\n")
    script = """
import bookkeeper
import model, api, labels, clock, settings, service, alerts, pipeline, sources, varstore, query_dsl
mine = model, api, labels, clock, settings, service, alerts, pipeline, sources, varstore, query_dsl
assert all(module.mine for module in mine)
bookkeeper.add_to_integer_var("n", {}, 5)
e = bookkeeper.default().endpoint
while not e.server: e._closing.wait(0.01)
print(e.server.port, flush=True)
input()
"""
    process = application(script, tmp_path, ARTIMON_ZOOKEEPER=NOWHERE)
    assert rows(int(hear(process)))[1] == {("n", "{}"): 5}
    say(process, "")
    end(process)


def test_without_zookeeper_nothing_is_slow_or_loud(tmp_path: Path) -> None:
    """A short program that counts ends at once, says nothing, and is not kept waiting for anybody."""
    script = "import bookkeeper\nfor i in range(1000): bookkeeper.add_to_integer_var('n', {'i': str(i)}, 1)\n"

    def took_s() -> float:
        started = perf_counter()
        assert end(application(script, tmp_path, ARTIMON_ZOOKEEPER=NOWHERE)) == ""
        return perf_counter() - started

    assert any(took_s() < 4.0 for _ in range(5)), "a poll would be waited for 5 s"


def test_a_zookeeper_that_hangs_does_not_hold_the_exit(tmp_path: Path) -> None:
    """A port that accepts and never answers is the worst kind of absent."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        script = """
import bookkeeper, time
t = time.perf_counter()
bookkeeper.add_to_integer_var('n', {}, 1)
assert time.perf_counter() - t < 5
input()
"""
        listener.settimeout(60)

        def took_s() -> float:
            process = application(script, tmp_path, ARTIMON_ZOOKEEPER=f"127.0.0.1:{listener.getsockname()[1]}")
            with listener.accept()[0]:
                started = perf_counter()
                say(process, "")
                end(process)
                return perf_counter() - started

        assert any(took_s() < 4.0 for _ in range(5)), "a poll would be waited for 5 s"


def test_disabled_only_counts(tmp_path: Path) -> None:
    """ARTIMON_DISABLED=1: no thread, no file; return values stay true."""
    script = """
import bookkeeper, threading, os
assert bookkeeper.add_to_integer_var('n', {}, 2) + bookkeeper.add_to_integer_var('n', {}, 2) == 6
assert threading.active_count() == 1
print(os.listdir('.'))
"""
    process = application(script, tmp_path, ARTIMON_DISABLED="1")
    assert hear(process) == "['app.py']"
    end(process)


FORKING = """
import bookkeeper, json, os, sys, time
def endpoint():
    e = bookkeeper.default().endpoint
    while not (e and e.registration): time.sleep(0.005)
    return e
handle = bookkeeper.integer("n", {"a": "x"})
handle.add(5)
bookkeeper.set_string_var("only.parent", {}, "x")
parent = endpoint()
first = parent.registration.path
r, w = os.pipe()
go_r, go_w = os.pipe()
children = []
for i in range(2):
    pid = os.fork()
    if pid == 0:
        assert handle.get() is None and bookkeeper.default().endpoint is None
        assert handle.add(1 + i) == 1 + i
        assert bookkeeper.add_to_integer_var("n", {"a": "x"}, 1) == 2 + i
        mine = endpoint()
        os.write(w, (json.dumps([os.getpid(), mine.server.port, mine.registration.path]) + "\\n").encode())
        os.read(go_r, 1)
        sys.exit(0)
    children.append(pid)
assert handle.add(1) == 6 and endpoint() is parent and parent.registration.path == first
lines = os.fdopen(r)
born = [json.loads(lines.readline()) for _ in children]
print(json.dumps([[os.getpid(), parent.server.port, first], *born]), flush=True)
input()
os.write(go_w, b"xx")
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
print("parent still", handle.add(1), flush=True)
input()
"""


def test_children_of_a_fork_are_endpoints_of_their_own(tmp_path: Path) -> None:
    """Own uuid, port, path and number; counts from zero; held handles work; the parent's go on."""
    # Python 3.12 warns by itself of any fork with threads.
    quiet = {"PYTHONWARNINGS": "ignore::DeprecationWarning"}
    process = application(FORKING, tmp_path, ARTIMON_ZOOKEEPER=NOWHERE, ARTIMON_CONTEXT="forking", **quiet)
    processes = json.loads(hear(process))
    ports = [port for _, port, _ in processes]
    assert len(set(ports)) == len({path for *_, path in processes}) == 3
    polled = [rows(port) for port in ports]
    assert polled[0][1] == {("n", '{"a": "x"}'): 6, ("only.parent", "{}"): "x"}
    assert sorted(values["n", '{"a": "x"}'] for _, values in polled[1:]) == [2, 3]
    assert all(len(values) == 1 for _, values in polled[1:])
    assert {who.instance for who, _ in polled} == {"0", "1", "2"}
    assert len({who.uuid for who, _ in polled}) == 3
    assert all(who.birth_ms >= polled[0][0].birth_ms for who, _ in polled)
    say(process, "")
    assert hear(process) == "parent still 7"
    assert rows(ports[0])[1]["n", '{"a": "x"}'] == 7
    say(process, "")
    assert end(process) == ""


FORK_STORM = """
import bookkeeper, os, sys, threading
stop = threading.Event()
def work(i):
    n = 0
    while not stop.is_set():
        n += 1
        bookkeeper.add_to_integer_var("n", {"i": str(i), "n": str(n % 50)}, 1)
        bookkeeper.remove_integer_var("n", {"i": str(i), "n": str((n + 25) % 50)})
threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(3)]
for t in threads: t.start()
for i in range(30):
    pid = os.fork()
    if pid == 0:
        assert bookkeeper.add_to_integer_var("child", {}, 1) == 1
        e = bookkeeper.default().endpoint
        while not e.server: e._closing.wait(0.005)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
stop.set()
for t in threads: t.join()
print("done", flush=True)
"""


def test_forks_in_the_middle_of_everything(tmp_path: Path) -> None:
    """Locks, imports and threads of the parent never hang a child."""
    process = application(FORK_STORM, tmp_path, ARTIMON_ZOOKEEPER=NOWHERE)
    assert hear(process) == "done"
    end(process)


FORKING_THREADS = """
import bookkeeper, os, threading
histogram = bookkeeper.histogram("h", {}, (1,))
timer = bookkeeper.timer("t")
bookkeeper.callback("c", {}, lambda: 2.0)
bookkeeper.integer("n").add(7)
histogram.observe(0.5)
def fork(i):
    for _ in range(6):
        with timer:
            pid = os.fork()
        if pid == 0:
            good = bookkeeper.integer("n").add(1) == 1 and histogram.count() == 0
            histogram.observe(5.0)
            found = {(e.name, e.labels.get("le")): e.value for e in bookkeeper.collect()}
            good = good and found["h.bucket", "+Inf"] == 1 and found["h.bucket", "1.0"] == 0 and found["c", None] == 2.0
            good = good and found["t.count", None] == 1 and found["n", None] == 1
            os._exit(0 if good else 1)
        assert os.waitpid(pid, 0)[1] == 0
        bookkeeper.add_to_integer_var("forks", {}, 1)
threads = [threading.Thread(target=fork, args=(i,)) for i in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print(bookkeeper.get_integer_var("forks", {}), bookkeeper.get_integer_var("n", {}), histogram.count(), flush=True)
"""


def test_threads_that_fork_at_the_same_time(tmp_path: Path) -> None:
    """Each lets go of what it held itself; children count everything from zero, also what was held before the fork."""
    process = application(FORKING_THREADS, tmp_path, ARTIMON_ZOOKEEPER=NOWHERE)
    assert hear(process) == "24 7 1"
    end(process)


FIRST_WRITE = """
import bookkeeper, signal
calls = []
def handler(*_):
    calls.append(bookkeeper.add_to_integer_var("n", {}, 1))
signal.signal(signal.SIGPROF, handler)
signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
done = 0
while len(calls) < 20:
    done += bookkeeper.integer("n").add(1) > 0
signal.setitimer(signal.ITIMER_PROF, 0)
print(bookkeeper.get_integer_var("n", {}) == done + len(calls), bookkeeper.refusals(), flush=True)
"""


def test_a_signal_in_the_middle_of_the_first_write(tmp_path: Path) -> None:
    """A signal handler that imports, reads the environment and starts a thread still counts."""
    process = application(FIRST_WRITE, tmp_path, ARTIMON_ZOOKEEPER=NOWHERE)
    assert hear(process) == "True {}"
    end(process)


def test_a_subprocess_with_preexec_does_not_disturb(tmp_path: Path) -> None:
    """preexec_fn runs the fork hooks in a child that then becomes another program."""
    script = """
import bookkeeper, subprocess, sys
bookkeeper.add_to_integer_var("n", {}, 1)
e = bookkeeper.default().endpoint
while not e.registration: e._closing.wait(0.005)
subprocess.run([sys.executable, "-c", "print('child', flush=True)"], preexec_fn=lambda: None, check=True)
print(e.server.port, flush=True)
input()
"""
    process = application(script, tmp_path, ARTIMON_ZOOKEEPER=NOWHERE)
    assert hear(process) == "child"
    assert rows(int(hear(process)))[1] == {("n", "{}"): 1}
    say(process, "")
    end(process)


def test_numbers_are_the_lowest_free_ones(tmp_path: Path) -> None:
    """A number that is given back is the next one to be taken; contexts do not share them."""
    run = str(tmp_path / "run")
    held = [instances.lock_instance(run, "shop") for _ in range(4)]
    assert [one.name for one in held] == ["0", "1", "2", "3"]
    held[2].close()
    held[1].close()
    assert instances.lock_instance(run, "shop ü%").name == "0"
    assert [instances.lock_instance(run, "shop").name for _ in range(1)] == ["1"]


def test_a_number_is_held_until_its_process_is_gone(tmp_path: Path) -> None:
    """kill -9 frees it; a restart gets it back."""
    script = (
        "import sys; from bookkeeper.process import instances; held = instances.lock_instance(sys.argv[1], 'c');"
        "print(held.name, flush=True); input()"
    )

    def worker() -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    workers = [worker() for _ in range(3)]
    assert [name for _, name in workers] == ["0", "1", "2"]
    workers[1][0].kill()
    workers[1][0].wait(10)
    again, name = worker()
    assert name == "1"
    for process in (workers[0][0], workers[2][0], again):
        process.kill()
        process.wait(60)


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """A link in /tmp must not lead our locks elsewhere."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(instances.InstanceError, match="not a folder of this user"):
        instances.lock_instance(str(tmp_path / "link"), "c")
    (tmp_path / "file").write_text("")
    with pytest.raises(instances.InstanceError, match="ARTIMON_RUN"):
        instances.lock_instance(str(tmp_path / "file"), "c")


@pytest.mark.parametrize("bad", ["", ".", "..", "a/b", "a\nb", "\x7f", "\u0085", "x" * 256, "\ue000"])
def test_contexts_that_zookeeper_would_refuse(bad: str) -> None:
    """Refused when set by hand, made to fit when it is the program's name."""
    with pytest.raises(SettingsError, match="context"):
        validate_name("context", bad)
    assert validate_name("context", fit_name(bad))


def test_a_bad_context_never_stops_the_application(tmp_path: Path) -> None:
    """Counted, and the program's name used instead."""
    script = """
import bookkeeper
bookkeeper.configure(context="also/bad")
bookkeeper.add_to_integer_var("n", {}, 1)
print(bookkeeper.refusals(), bookkeeper.default().endpoint._settings.context, flush=True)
"""
    process = application(script, tmp_path, ARTIMON_ZOOKEEPER=NOWHERE, ARTIMON_CONTEXT="a/b")
    assert hear(process) == "{'settings': 2} app"
    end(process)


def test_settings_by_hand_win_over_the_environment() -> None:
    """configured > environment > default."""
    environment = {"ARTIMON_CONTEXT": "env", "ARTIMON_ZOOKEEPER": "zk:1", "ARTIMON_INSTANCE": "7"}
    assert read_settings({"context": "hand"}, environment).context == "hand"
    assert read_settings({"context": None}, environment).context == "env"
    assert read_settings({}, {}).zookeeper == "127.0.0.1:2181"
    assert read_settings({}, environment).instance == "7"


def test_addresses() -> None:
    """Advertised: by hand > the way to ZooKeeper. IPv6 in brackets."""
    assert choose_addresses("127.0.0.1:2181", None, None).advertise == "127.0.0.1"
    assert choose_addresses("127.0.0.1:2181", None, None).bind[0] == "127.0.0.1"
    assert choose_addresses("127.0.0.1:2181", "203.0.113.9", None)[:2] == (["203.0.113.9", "127.0.0.1"], "203.0.113.9")
    assert choose_addresses("127.0.0.1:2181", "[2001:db8::1]", "::").bind == ["::"]
    assert bracket_ipv6("2001:db8::1") == "[2001:db8::1]"
    assert zookeeper_hosts("a:1, [::1]:2,[::1],b/x/y") == [("a", 1), ("::1", 2), ("::1", 2181), ("b", 2181)]


def test_a_bad_context_costs_no_other_setting() -> None:
    """The rest of the environment still holds: where ZooKeeper is, and whether anything goes out at all."""
    environment = {
        "ARTIMON_CONTEXT": "a/b",
        "ARTIMON_INSTANCE": "7",
        "ARTIMON_ZOOKEEPER": "zk:1",
        "ARTIMON_DISABLED": "1",
    }
    found = read_settings({}, environment, lenient=True)
    assert found.context == fit_name(program_name())
    assert (found.instance, found.zookeeper, found.disabled) == ("7", "zk:1", True)
