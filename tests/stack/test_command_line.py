"""The command line: where things are, and that what the stack starts is what the commands take."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import typer.main

from artimon import cli
from artimon.runtime.settings import DEFAULT_KAFKA, DEFAULT_ZOOKEEPER, load
from artimon.stack import stack_location as locate
from artimon.stack.artimon_parts import ArtimonPart, health_problem
from artimon.stack.bench import FAMILIES, known_benchmarks, readable, run_benchmark
from artimon.stack.child_process import start_time
from artimon.stack.part_catalogue import ALL_PARTS, choose_parts
from artimon.stack.stack_errors import NotRunningError
from artimon.stack.stack_part import StackContext
from artimon.stack.stack_state import StackState, write_state
from tests.stack.fakes import make_context

OWN = [part for part in choose_parts(ALL_PARTS) if isinstance(part, ArtimonPart)]
ROOT = Path(__file__).resolve().parents[2]


def full_context(data: Path) -> StackContext:
    """A context in which every port of the default stack is leased."""
    bare = make_context(data)
    ports = {name: port for part in choose_parts(ALL_PARTS) for name, port in part.ports.items()}
    return StackContext(data, ports, bare.settings, bare.java, bare.jars, bare.spark_jars)


@pytest.mark.parametrize("part", OWN, ids=lambda part: part.name)
def test_every_process_is_started_with_flags_that_its_command_has(part: ArtimonPart, tmp_path: Path) -> None:
    context = full_context(tmp_path)
    argv = part.command(context).argv
    name, *arguments = argv[argv.index("artimon.cli") + 1 :]
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    parsed = commands[name].make_context(name, arguments).params
    assert parsed["health"] == context.health(part.name)
    assert parsed.get("zookeeper", "127.0.0.1:2181") == "127.0.0.1:2181"


def test_what_up_is_told_of_retention_reaches_agent_and_compactor(tmp_path: Path) -> None:
    rules = [r"debug\..*=debug", "a b=c"]
    context = replace(full_context(tmp_path), options={"keep": "debug=7,*=30", "keep_class": "\n".join(rules)})
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    told = {}
    for part in OWN:
        if part.name in ("agent", "compactor"):
            argv = part.command(context).argv
            name, *arguments = argv[argv.index("artimon.cli") + 1 :]
            told[name] = commands[name].make_context(name, arguments).params
    assert told["agent"]["keep_class"] == rules
    assert told["compactor"]["keep"] == "debug=7,*=30"


def test_default_ports_are_all_different() -> None:
    ports = [port for part in choose_parts(ALL_PARTS) for port in part.ports.values()]
    assert len(ports) == len(set(ports))


def test_health_is_stale_damaged_or_good(tmp_path: Path) -> None:
    from artimon.model.clock import SYSTEM_CLOCK, ManualClock
    from artimon.runtime.health import HealthFile

    context = full_context(tmp_path)
    agent = next(part for part in OWN if part.name == "agent")
    assert "not reported" in health_problem(context, "agent")
    HealthFile(context.health("agent"), "agent").write("ok")
    assert health_problem(context, "agent") == ""
    HealthFile(context.health("agent"), "agent").write("starting", "waits for ZooKeeper")
    assert health_problem(context, "agent") == "starting: waits for ZooKeeper"
    HealthFile(context.health("agent"), "agent", ManualClock(SYSTEM_CLOCK.now_ms() - 60_000)).write("ok")
    assert "for 60 s" in health_problem(context, "agent")
    agent.prepare(context)
    assert not context.health("agent").exists()  # an earlier life's health says nothing of the next one


def test_settings_take_the_environment_before_defaults(tmp_path: Path) -> None:
    found = load({"HOME": str(tmp_path), "ARTIMON_ZOOKEEPER": "zk:1"})
    assert (found.zookeeper, found.kafka) == ("zk:1", DEFAULT_KAFKA)
    assert found.data == tmp_path / ".local" / "share" / "artimon" / "default"
    assert load({"HOME": "/h", "XDG_CACHE_HOME": "/c"}).cache == Path("/c/artimon")


def test_a_running_stack_is_found_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in ("ARTIMON_ZOOKEEPER", "ARTIMON_KAFKA"):
        monkeypatch.delenv(name, raising=False)
    places = {"ARTIMON_ZOOKEEPER": "127.0.0.1:7", "ARTIMON_KAFKA": "127.0.0.1:8"}
    me = os.getpid()
    write_state(tmp_path, StackState(me, start_time(me), {}, places, []))
    assert locate.locate_settings(tmp_path).zookeeper == "127.0.0.1:7"
    monkeypatch.setenv("ARTIMON_ZOOKEEPER", "zk:1")
    assert locate.locate_settings(tmp_path).zookeeper == "zk:1"
    write_state(tmp_path, StackState(me, start_time(me) - 100, {}, places, []))  # it died; the number is ours by chance
    monkeypatch.delenv("ARTIMON_ZOOKEEPER")
    assert locate.locate_settings(tmp_path).zookeeper == DEFAULT_ZOOKEEPER


def test_a_folder_that_was_chosen_and_has_no_stack_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARTIMON_ZOOKEEPER", raising=False)
    monkeypatch.setenv("ARTIMON_DATA", str(tmp_path))
    with pytest.raises(NotRunningError, match="no stack runs"):
        locate.zookeeper_of_store(None, None)
    assert locate.zookeeper_of_store("zk:1", None) == "zk:1"


def test_unknown_benchmark_names_the_known_ones() -> None:
    said: list[str] = []
    assert run_benchmark("nothing", [], True, said.append) == 2
    assert all(name in said[0] for name in known_benchmarks())


def test_a_family_of_benchmarks_prints_each_line_once() -> None:
    """No module of a family runs parts of another one; a module that one of them runs is not in the family."""
    for modules in FAMILIES.values():
        assert set(modules) <= set(known_benchmarks())
        for name in modules:
            text = (ROOT / "benchmarks" / f"{name}.py").read_text()
            imported = {one for line in re.findall(r"from benchmarks import (.*)", text) for one in line.split(", ")}
            assert not imported & set(modules)


def test_benchmark_lines_for_people() -> None:
    line = '{"name": "increment.call", "value": 200, "unit": "ns", "peer": "prometheus_client", "ratio": 4.5}'
    assert readable(line).split() == ["increment.call", "200", "ns", "4.5", "x", "prometheus_client"]
    assert readable("some text\n") == "some text"
    assert readable("12\n") == "12"
    failed = '{"name": "query.topk", "value": null, "unit": "", "failed": "no peer"}'
    assert readable(failed).split() == ["query.topk", "FAILED:", "no", "peer"]
