"""The writer of drop-in files: what stands in them, that nobody sees half of one, and every way to fail."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import bookkeeper
from bookkeeper import Bookkeeper, dropin
from bookkeeper.dropin import DropinError, Writer
from bookkeeper.runtime import process_settings as settings
from tests.bookkeeper.polling import REPOSITORY


@pytest.fixture
def book() -> Iterator[Bookkeeper]:
    """A book that the module's functions go to."""
    made = Bookkeeper()
    before = bookkeeper.use(made)
    yield made
    bookkeeper.use(before)


def lines_of(path: Path) -> list[str]:
    """Lines of variables, without their times."""
    return [line.partition(" ")[2] for line in path.read_text().splitlines() if not line.startswith("#")]


def test_all_variables_stand_in_the_file_with_one_time(book: Bookkeeper, tmp_path: Path) -> None:
    book.online = False
    bookkeeper.describe("orders", "Orders  taken\nby route", "pieces")
    bookkeeper.add_to_integer_var("orders", {"route": '/"\\\n', "code": "200"}, 3)
    bookkeeper.set_double_var("load", {}, 0.5)
    bookkeeper.set_boolean_var("up", {}, True)
    bookkeeper.set_string_var("state", {}, 'a "b"\n\\')
    writer = Writer("a", tmp_path)
    assert writer.write() == 4
    text = (tmp_path / "a.artimon").read_text()
    assert text.endswith("\n")
    assert lines_of(tmp_path / "a.artimon") == [
        'orders{code="200",route="/\\"\\\\\\n"} 3',
        "load{} 0.5",
        "up{} true",
        'state{} "a \\"b\\"\\n\\\\"',
    ]
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert comments[0].startswith("# birth 1")
    assert set(comments[1:]) == {
        "# kind orders counter",
        "# kind load gauge",
        "# kind up gauge",
        "# kind state gauge",
        "# unit orders pieces",
        "# help orders Orders taken by route",
    }
    times = {line.split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    assert len(times) == 1
    assert writer.write() == 4
    later = int((tmp_path / "a.artimon").read_text().splitlines()[-1].split(" ")[0])
    assert later > int(times.pop()), "times grow even within one millisecond"


def test_labels_of_the_writer_give_way_to_those_of_a_variable(book: Bookkeeper, tmp_path: Path) -> None:
    with Writer("a-1", tmp_path, labels={"context": "a", "instance": "1"}):
        bookkeeper.add_to_integer_var("n", {"instance": "mine"}, 1)
    assert lines_of(tmp_path / "a-1.artimon") == ['n{context="a",instance="mine"} 1']


def test_a_block_writes_at_its_end_also_after_an_exception(
    book: Bookkeeper, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.suppress(KeyError), Writer("a", tmp_path):
        bookkeeper.add_to_integer_var("n", {}, 1)
        assert list(tmp_path.iterdir()) == []
        raise KeyError("mine")
    assert lines_of(tmp_path / "a.artimon") == ["n{} 1"]
    with pytest.raises(KeyError, match="mine"), Writer("a", tmp_path / "gone", book=Bookkeeper()):
        raise KeyError("mine")
    assert "does not exist: create it" in caplog.text, "the program's own exception is the one to be seen"


def test_a_program_that_writes_files_is_not_polled_too(book: Bookkeeper, tmp_path: Path) -> None:
    with Writer("a", tmp_path):
        bookkeeper.add_to_integer_var("n", {}, 1)
        assert book.endpoint is None
    started = Bookkeeper(zookeeper="127.0.0.1:1")
    started.add_to_integer_var("n", {}, 1)
    try:
        with pytest.raises(DropinError, match="polled already"):
            Writer("a", tmp_path, book=started)
    finally:
        started.close()


def test_write_dropin_goes_on_with_the_same_counts(book: Bookkeeper, tmp_path: Path) -> None:
    """Two calls tell one birth, or what the first told would count again."""
    book.online = False
    bookkeeper.add_to_integer_var("n", {}, 1)
    assert bookkeeper.write_dropin("a", str(tmp_path)) == 1
    first = (tmp_path / "a.artimon").read_text().splitlines()[0]
    threading.Event().wait(0.005)
    bookkeeper.write_dropin("a", str(tmp_path))
    assert (tmp_path / "a.artimon").read_text().splitlines()[0] == first


def test_the_name_and_the_folder_come_from_the_settings(
    book: Bookkeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARTIMON_DROPIN", str(tmp_path))
    monkeypatch.setenv("ARTIMON_CONTEXT", "shop")
    Writer().write()
    assert (tmp_path / "shop.artimon").exists()
    assert settings.dropin_folder(None, {}) == "/var/run/artimon"
    assert settings.dropin_folder(tmp_path, {"ARTIMON_DROPIN": "/other"}) == str(tmp_path)


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_the_agent_can_read_it_whatever_the_umask(book: Bookkeeper, tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        Writer("a", tmp_path).write()
        Writer("b", tmp_path, mode=0o640, sync=True).write()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.artimon").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "b.artimon").stat().st_mode) == 0o640


def test_nobody_sees_half_a_file(book: Bookkeeper, tmp_path: Path) -> None:
    """A reader beside a writer finds whole files of one time only, and no other name with the suffix."""
    writer, stop, torn = Writer("a", tmp_path), threading.Event(), []
    for i in range(500):
        bookkeeper.set_integer_var("n", {"i": str(i)}, i)
    writer.write()

    def read() -> None:
        while not stop.is_set():
            text = (tmp_path / "a.artimon").read_text()
            times = {line.split(" ")[0] for line in text.splitlines()[2:]}
            if len(text.splitlines()) != 502 or len(times) != 1:
                torn.append(text)
            if [p.name for p in tmp_path.glob("*.artimon")] != ["a.artimon"]:
                torn.append("another name")

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(50):
        writer.write()
    stop.set()
    reader.join()
    assert torn == []
    assert [path.name for path in tmp_path.iterdir()] == ["a.artimon"], "no scratch file stays"


def test_the_background_writes_each_period_and_at_the_end(book: Bookkeeper, tmp_path: Path) -> None:
    path = tmp_path / "a.artimon"
    writer = Writer("a", tmp_path).start(0.01)
    bookkeeper.add_to_integer_var("n", {}, 1)
    _until(lambda: path.exists() and lines_of(path) == ["n{} 1"])
    bookkeeper.add_to_integer_var("n", {}, 1)
    _until(lambda: lines_of(path) == ["n{} 2"])
    bookkeeper.add_to_integer_var("n", {}, 1)
    writer.close()
    assert lines_of(path) == ["n{} 3"]
    path.unlink()
    writer.close()
    assert not path.exists()


def _until(condition: object) -> None:
    waited, never = 0.0, threading.Event()
    while not condition():  # type: ignore[operator]
        never.wait(0.005)
        waited += 0.005
        assert waited < 10


def test_the_end_of_the_program_writes_a_last_time(tmp_path: Path) -> None:
    script = (
        "import sys, bookkeeper\n"
        "from bookkeeper import dropin\n"
        "dropin.Writer('a', sys.argv[1]).start(3600)\n"
        "bookkeeper.add_to_integer_var('n', {}, 5)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=30, cwd=REPOSITORY)
    assert lines_of(tmp_path / "a.artimon") == ["n{} 5"]


def test_a_forked_child_leaves_the_file_of_its_parent_alone(tmp_path: Path) -> None:
    """Its book is empty: the end of the block in the child must not replace what the parent counted."""
    script = (
        "import os, sys, bookkeeper\n"
        "from bookkeeper import dropin\n"
        "try:\n"
        "    with dropin.Writer('a', sys.argv[1]) as writer:\n"
        "        bookkeeper.add_to_integer_var('n', {}, 5)\n"
        "        writer.write()\n"
        "        pid = os.fork()\n"
        "        if pid == 0:\n"
        "            try:\n"
        "                writer.write()\n"
        "            except dropin.DropinError as error:\n"
        "                assert 'another name' in str(error)\n"
        "                bookkeeper.add_to_integer_var('n', {}, 1)\n"
        "                dropin.Writer('b', sys.argv[1]).write()\n"
        "                sys.exit(7)\n"
        "        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
        "        os.rename(writer.path, writer.path + '.before')\n"
        "finally:\n"
        "    pass\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=30, cwd=REPOSITORY)
    assert lines_of(tmp_path / "a.artimon.before") == ["n{} 5"]
    assert lines_of(tmp_path / "a.artimon") == ["n{} 5"]
    assert lines_of(tmp_path / "b.artimon") == ["n{} 1"]


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\nb", ".a", "x" * 250, "a\ud800"])
def test_a_name_that_is_no_file_is_refused_at_once(book: Bookkeeper, tmp_path: Path, name: str) -> None:
    with pytest.raises(DropinError, match="drop-in file"):
        Writer(name, tmp_path)


def test_what_fails_is_said_with_what_to_do_and_leaves_the_file_as_it_was(
    book: Bookkeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DropinError, match=r"folder .* does not exist: .*ARTIMON_DROPIN"):
        Writer("a", tmp_path / "gone").write()
    writer = Writer("a", tmp_path)
    bookkeeper.add_to_integer_var("n", {}, 1)
    writer.write()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    bookkeeper.add_to_integer_var("n", {}, 1)
    with pytest.raises(DropinError, match="No space left on device: the old file is unchanged"):
        writer.write()
    monkeypatch.undo()
    assert lines_of(tmp_path / "a.artimon") == ["n{} 1"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.artimon"]
    (tmp_path / "b.artimon").mkdir()
    with pytest.raises(DropinError):
        Writer("b", tmp_path).write()


def test_kinds_that_differ_within_a_name_are_not_told(book: Bookkeeper, tmp_path: Path) -> None:
    book.online = False
    bookkeeper.add_to_integer_var("n", {"a": "1"}, 1)
    bookkeeper.set_integer_var("n", {"a": "2"}, 1)
    dropin.write("a", tmp_path)
    assert "# kind" not in (tmp_path / "a.artimon").read_text()
