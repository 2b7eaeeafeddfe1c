"""Clients made from bookkeeper.thrift by Apache Thrift's compiler, in Perl and in Java, read a process of ours."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from artimon.runtime import settings
from bookkeeper import Bookkeeper
from bookkeeper.variables.canonical import canonical
from tests.clients.conftest import ROOT, Built, Generate
from tests.programs import require
from tests.waiting import eventually

Poll = Callable[[int, str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A process's endpoint, with values that are hard to carry."""
    monkeypatch.setenv("ARTIMON_RUN", str(tmp_path))
    book = Bookkeeper(context="test", zookeeper="127.0.0.1:1")
    book.set_integer_var("big", {}, (1 << 53) + 1)
    book.set_integer_var("least", {}, -(1 << 63))
    book.add_to_integer_var("most", {"a": 'q"\\\n', "b": "Zürich ☃"}, (1 << 63) - 1)
    book.add_to_double_var("tenth", {}, 0.1)
    book.set_double_var("least.double", {}, 5e-324)
    book.set_double_var("negative", {}, -1.5e300)
    book.set_boolean_var("true", {}, True)
    book.set_boolean_var("false", {}, False)
    for value, text in (("1", "größe 大"), ("2", ""), ("3", "größe 大"), ("4", "𝄞\n\t")):
        book.set_string_var("s", {"a": value}, text)
    endpoint = book.endpoint
    assert endpoint is not None
    yield int(eventually(lambda: endpoint.server.port if endpoint.server else None))
    book.close()


EXPECTED = {
    ("INTEGER", canonical("big", {})): (1 << 53) + 1,
    ("INTEGER", canonical("least", {})): -(1 << 63),
    ("INTEGER", canonical("most", {"a": 'q"\\\n', "b": "Zürich ☃"})): (1 << 63) - 1,
    ("DOUBLE", canonical("tenth", {})): 0.1,
    ("DOUBLE", canonical("least.double", {})): 5e-324,
    ("DOUBLE", canonical("negative", {})): -1.5e300,
    ("BOOLEAN", canonical("true", {})): True,
    ("BOOLEAN", canonical("false", {})): False,
    ("STRING", canonical("s", {"a": "1"})): "größe 大",
    ("STRING", canonical("s", {"a": "2"})): "",
    ("STRING", canonical("s", {"a": "3"})): "größe 大",
    ("STRING", canonical("s", {"a": "4"})): "𝄞\n\t",
}


_TYPES: dict[str, Callable[[str], object]] = {"INTEGER": int, "DOUBLE": float, "BOOLEAN": "true".__eq__}


def read(printed: str) -> dict[tuple[str, str], object]:
    """Return the printed values of a client in their own types."""
    found: dict[tuple[str, str], object] = {}
    for line in printed.splitlines():
        type_, name, value = line.split("\t", 2)
        if type_ == "STRING":
            found[type_, name] = value[1:-1].replace("\\n", "\n")
        else:
            found[type_, name] = _TYPES[type_](value)
    return found


@pytest.fixture(scope="module")
def perl(generate: Generate) -> Poll:
    generated, program = generate("perl"), require("perl-thrift")
    environment = settings.child_environment(program.environment)

    def run(port: int, form: str) -> subprocess.CompletedProcess[str]:
        command = [str(program.path), "-I", str(generated), str(ROOT / "clients" / "perl" / "poll.pl")]
        return subprocess.run(
            [*command, "127.0.0.1", str(port), form],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_perl_reads_equal_values(perl: Poll, port: int, form: str) -> None:
    done = perl(port, form)
    assert done.stderr == ""
    assert read(done.stdout) == EXPECTED


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_java_reads_equal_values(java: Built, port: int, form: str) -> None:
    command = java.command("artimon.Poll", "127.0.0.1", str(port), form)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert read(done.stdout) == EXPECTED


def test_what_is_no_number_arrives_in_perl(perl: Poll, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARTIMON_RUN", str(tmp_path))
    book = Bookkeeper(context="test", zookeeper="127.0.0.1:1")
    book.set_double_var("nan", {}, math.nan)
    book.set_double_var("inf", {}, -math.inf)
    endpoint = book.endpoint
    assert endpoint is not None
    done = perl(eventually(lambda: endpoint.server.port if endpoint.server else None), "columns")
    book.close()
    found = read(done.stdout)
    assert found["DOUBLE", "inf{}"] == -math.inf
    assert math.isnan(float(str(found["DOUBLE", "nan{}"])))


def test_nobody_there_is_told_in_perl(perl: Poll) -> None:
    done = perl(1, "rows")
    assert done.returncode != 0
    assert "connect" in done.stderr
