"""Attacks on configuration and commands in a ZooKeeper that everybody may write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from artimon.cli import app
from artimon.model.clock import SYSTEM_CLOCK
from pipeline.control import rollout as decide
from pipeline.control.agent_commands import AgentMode, Command
from pipeline.control.config_document import canonical
from pipeline.control.control_state import ControlState, ControlStateFile
from pipeline.control.control_tree import config_path
from pipeline.control.rollout import Configuration, Layer, RolloutState, VersionId
from pipeline.control.signatures import InvalidSignatureError, KeyFileError, SigningKeys, create_key_file, read_keys
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from pipeline.flows.runtime.flows import open_flows
from tests.pipeline.plane.world import KEYS, Operator, key_file, new_name
from tests.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.fixture(autouse=True)
def _short_probation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "PROBATION_S", 0.3)


@pytest.fixture
def operator(zookeeper: str) -> Iterator[Operator]:
    made = Operator(zookeeper)
    yield made
    made.close()


@pytest.fixture
def stranger(zookeeper: str) -> Iterator[Operator]:
    """Attacker that may write ZooKeeper and has no key."""
    made = Operator(zookeeper, keys=None)
    yield made
    made.close()


@contextmanager
def agent_of(name: str, folder: Path, zookeeper: str, keys: bool = True, allow: str = "") -> Iterator[Agent]:
    """An agent with flows, as `artimon agent` wires it; without keys it has the default settings."""
    file = None
    folder.mkdir(parents=True, exist_ok=True)
    if allow:
        file = folder / "allow.toml"
        file.write_text(allow)
    flows = open_flows(None, name, folder, zookeeper, allow=file)
    agent = Agent(AgentConfig(name, folder, zookeeper, "kafka", keys=key_file(folder) if keys else None))
    agent.plane._every_s = 0.2
    agent.controls.flows = flows
    agent.controls.on_setting("poll", lambda _: None)
    flows.start()
    agent.start()
    try:
        yield agent
    finally:
        flows.stop()
        agent.stop()


def running_program(mark: Path) -> dict[str, Any]:
    source = {"type": "exec", "command": ["/usr/bin/touch", str(mark)]}
    return {"flow": [{"name": "door", "source": source, "sink": {"type": "null"}}]}


def refused(operator: Operator, name: str) -> str:
    """Return the agent's reason for refusing its pushed configuration, once it is reported."""
    return str(eventually(lambda: operator.report(name).get("config", {}).get("refused"), "it says why"))


def test_the_door_of_the_audit_is_closed(tmp_path: Path, zookeeper: str, stranger: Operator) -> None:
    """`artimon config push` with a program, default settings, an open ZooKeeper: the program ran within 2 s."""
    name, mark = new_name(), tmp_path / "was-here"
    with agent_of(name, tmp_path / "agent", zookeeper, keys=False) as agent:
        stranger.push(f"agent/{name}", quota="100MiB")
        eventually(lambda: agent.log.quota_bytes == 100 * 2**20, "numbers may be changed by anybody")
        stranger.push_document(f"agent/{name}", running_program(mark))
        reason = refused(stranger, name)
        assert "more than numbers" in reason
        assert "artimon config key" in reason, "the remedy"
        assert agent.log.quota_bytes == 100 * 2**20, "the old configuration stays"
        assert agent.plane.figures()["running"] == f"agent/{name}@1"
        assert any("kept out" in text for text in stranger.report(name)["problems"])
        assert not mark.exists()
    with agent_of(name, tmp_path / "agent", zookeeper, keys=False) as agent:
        refused(stranger, name)
        assert not mark.exists(), "nor after a restart"


def test_not_even_a_signature_runs_a_program_that_the_host_did_not_name(
    tmp_path: Path, zookeeper: str, operator: Operator
) -> None:
    name, mark = new_name(), tmp_path / "was-here"
    allow = f'[part.mark]\nkind = "source"\ntype = "exec"\ncommand = ["/usr/bin/touch", "{mark}"]\n'
    by_name = {"flow": [{"name": "door", "source": {"part": "mark"}, "sink": {"type": "null"}}]}
    with agent_of(name, tmp_path / "agent", zookeeper, allow=allow):
        operator.push_document(f"agent/{name}", running_program(mark))
        assert "exec needs command" in refused(operator, name) or "must not be named" in refused(operator, name)
        assert not mark.exists()
        operator.push_document(f"agent/{name}", by_name)
        eventually(mark.exists, "the host's own part runs by its name")
    mark.unlink()
    with agent_of(name, tmp_path / "agent", zookeeper, allow="[folder]\n") as agent:
        assert agent.plane.figures()["running"] == "none", "the host allows it no more"
        assert "mark" in refused(operator, name)
        assert not mark.exists()


BEYOND_NUMBERS: dict[str, dict[str, Any]] = {
    "level": {"metrics": {"level": "hdfs"}},
    "delivery": {"metrics": {"delivery": "best-effort"}},
    "collectors": {"metrics": {"collectors": ["of-the-attacker"]}},
    "collectors_mode": {"metrics": {"collectors_mode": "round-robin"}},
    "harmless_flow": {"flow": [{"name": "x", "source": {"type": "sequence"}, "sink": {"type": "null"}}]},
    "number_in_a_flow": {"metrics": {"collectors": ["ours"]}, "flow": [{"name": "x", "off": True}]},
    "taken_away": {"metrics": {"poll": "10s"}},
    "nothing": {},
}


@pytest.mark.parametrize("attack", BEYOND_NUMBERS)
def test_a_stranger_changes_numbers_alone(
    attack: str, tmp_path: Path, zookeeper: str, operator: Operator, stranger: Operator
) -> None:
    name = new_name()
    operator.push(f"agent/{name}", collectors=["ours"], quota="100MiB")
    with agent_of(name, tmp_path / "agent", zookeeper) as agent:
        eventually(lambda: agent.plane.figures()["good"] == f"agent/{name}@1", "the operator's runs")
        stranger.push_document(f"agent/{name}", BEYOND_NUMBERS[attack])
        assert "not signed" in refused(operator, name)
        assert agent._groups == ("ours",)
        stranger.push(f"agent/{name}", collectors=["ours"], quota="200MiB")
        eventually(lambda: agent.log.quota_bytes == 200 * 2**20, "numbers beside what was signed may be changed")
        assert agent.plane.figures()["refused"] == ""


def stored(operator: Operator, scope: str, number: int) -> bytes:
    found: bytes = operator.client.get(f"{config_path(scope)}/{number:010d}")[0]
    return found


def place(attacker: Operator, scope: str, lineage: str, number: int, data: bytes) -> None:
    """Put a version under any lineage and number, as whoever may write nodes can."""
    path = f"{config_path(scope)}/{number:010d}"
    attacker.client.ensure_path(path)
    attacker.client.set(path, data)
    attacker.client.set(config_path(scope), json.dumps({"lineage": lineage, "number": number}).encode())


def lineage_of(operator: Operator, scope: str) -> str:
    return str(json.loads(operator.client.get(config_path(scope))[0])["lineage"])


REPLAYS = ["same_place", "higher_number", "other_lineage", "other_agent", "changed", "unknown_key", "command_signature"]


@pytest.mark.parametrize("attack", REPLAYS)
def test_what_was_signed_once_cannot_be_used_again(
    attack: str, tmp_path: Path, zookeeper: str, operator: Operator, stranger: Operator
) -> None:
    name, other = new_name(), new_name()
    scope = f"agent/{name}"
    operator.push(scope, collectors=["old"])
    old = stored(operator, scope, 1)
    operator.push(scope, collectors=["new"])
    operator.push(f"agent/{other}", collectors=["elsewhere"])
    with agent_of(name, tmp_path / "agent", zookeeper) as agent:
        eventually(lambda: agent.plane.figures()["good"] == f"{scope}@2", "the newest runs")
        lineage = lineage_of(operator, scope)
        if attack == "same_place":
            place(stranger, scope, lineage, 1, old)
        elif attack == "higher_number":
            place(stranger, scope, lineage, 9, old)
        elif attack == "other_lineage":
            place(stranger, scope, "0123456789ab", 1, old)
        elif attack == "other_agent":
            place(stranger, scope, lineage_of(operator, f"agent/{other}"), 1, stored(operator, f"agent/{other}", 1))
        else:
            found = json.loads(stored(operator, scope, 2))
            found["document"] = {"metrics": {"collectors": ["mine"]}}
            if attack == "unknown_key":
                found["signature"]["key"] = "mine"
            if attack == "command_signature":
                found["signature"] = KEYS.sign("command", {**found, "signature": None})
            place(stranger, scope, lineage, 3, json.dumps(found).encode())
        eventually(lambda: agent.plane.problems(), "it says so")
        assert agent._groups == ("new",)
        assert agent.plane.figures()["running"] == f"{scope}@2"
        operator.push(scope, collectors=["newest"])
        eventually(lambda: agent._groups == ("newest",), "the operator is believed all the same")


def test_a_lineage_that_was_left_does_not_come_back(
    tmp_path: Path, zookeeper: str, operator: Operator, stranger: Operator
) -> None:
    """ZooKeeper was wiped, and the operator pushed again: who kept the old nodes cannot put them back."""
    name = new_name()
    scope = f"agent/{name}"
    operator.push(scope, collectors=["old"])
    lineage, data = lineage_of(operator, scope), stored(operator, scope, 1)
    with agent_of(name, tmp_path / "agent", zookeeper) as agent:
        eventually(lambda: agent._groups == ("old",), "it runs")
        operator.client.delete(config_path(scope), recursive=True)
        operator.push(scope, collectors=["new"])
        eventually(lambda: agent._groups == ("new",), "a new lineage counts")
        place(stranger, scope, lineage, 1, data)
        eventually(lambda: "older" in agent.plane.figures()["stale"], "it is seen")
        assert agent._groups == ("new",)


def test_numbers_of_a_stranger_do_not_lock_the_operator_out(
    tmp_path: Path, zookeeper: str, operator: Operator, stranger: Operator
) -> None:
    name = new_name()
    scope = f"agent/{name}"
    operator.push(scope, collectors=["ours"])
    with agent_of(name, tmp_path / "agent", zookeeper) as agent:
        eventually(lambda: agent._groups == ("ours",), "it runs")
        lineage = lineage_of(operator, scope)
        document = {"metrics": {"collectors": ["ours"], "quota": "50MiB"}}
        found = {**json.loads(stored(operator, scope, 1)), "document": document, "signature": None}
        place(stranger, scope, lineage, 2**31 - 1, json.dumps(found).encode())
        eventually(lambda: agent.log.quota_bytes == 50 * 2**20, "numbers count")
        stranger.client.set(config_path(scope), json.dumps({"lineage": lineage, "number": 1}).encode())
        operator.push(scope, collectors=["next"])
        eventually(lambda: agent._groups == ("next",), "a signed version counts against signed ones only")


def test_what_an_older_agent_took_does_not_run_after_an_upgrade(tmp_path: Path, zookeeper: str) -> None:
    name, mark, folder = new_name(), tmp_path / "was-here", tmp_path / "agent"
    layer = Layer(VersionId(f"agent/{name}", "l", 1), canonical(running_program(mark)))
    ControlStateFile(folder / "plane").save(
        ControlState(RolloutState({f"agent/{name}": layer}, Configuration((layer,))))
    )
    with agent_of(name, folder, "127.0.0.1:1") as agent:
        assert agent.plane.figures()["running"] == "none"
        assert any("kept out" in text for text in agent.plane.problems())
        assert not mark.exists()
    del zookeeper


@pytest.mark.parametrize("name", ["drain", "pause", "resume", "roll", "release", "rm"])
def test_a_command_of_a_stranger_is_answered_and_not_obeyed(
    name: str, tmp_path: Path, zookeeper: str, stranger: Operator
) -> None:
    agent_name = new_name()
    with agent_of(agent_name, tmp_path / "agent", zookeeper) as agent:
        given = stranger.give(agent_name, name, lane="0")
        answer = eventually(lambda: stranger.answer(agent_name, given), "it is answered")
        assert answer.state == "refused"
        assert "not signed" in answer.text
        assert agent.plane.mode is AgentMode.RUNNING
        assert not agent.plane._journal.answers, "what was refused displaces no answer"


def test_a_command_counts_for_one_agent_once_and_until_its_deadline(
    tmp_path: Path, zookeeper: str, operator: Operator, stranger: Operator
) -> None:
    name, other = new_name(), new_name()
    with (
        agent_of(name, tmp_path / "agent", zookeeper) as agent,
        agent_of(other, tmp_path / "other", zookeeper) as second,
    ):
        pause = operator.give(name, "pause")
        eventually(lambda: operator.answer(name, pause), "it is paused")
        data = operator.client.get(f"/artimon/commands/{name}/{pause}")[0]
        resume = operator.give(name, "resume")
        eventually(lambda: operator.answer(name, resume), "it runs again")
        for copy in ("again", "other"):
            stranger.tree.send_command(name, Command.parse(copy, data))
        stranger.tree.send_command(other, Command.parse(pause, data))
        late = replace(Command.parse(pause, data), deadline_ms=SYSTEM_CLOCK.now_ms() + 10**9, id="late")
        stranger.tree.send_command(name, late)
        for one, id in ((name, "again"), (name, "other"), (name, "late"), (other, pause)):
            answer = eventually(lambda one=one, id=id: stranger.answer(one, id), "it is answered")  # type: ignore[misc]
            assert answer.state == "refused"
        assert agent.plane.mode is second.plane.mode is AgentMode.RUNNING


def test_the_terminal_signs_and_says_what_is_refused(
    tmp_path: Path, zookeeper: str, stranger: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, file = new_name(), tmp_path / "c.toml"
    place_of, runner = ("--zookeeper", zookeeper), CliRunner()
    file.write_text('[metrics]\nlevel = "kafka"\n')
    with agent_of(name, tmp_path / "agent", zookeeper):
        push = ["config", "push", str(file), "--agent", name, *place_of, "--wait", "60"]
        eventually(lambda: name in stranger.tree.agents(), "the push waits for live agents only")
        unsigned = runner.invoke(app, push)
        assert unsigned.exit_code == 1
        assert "is not signed" in unsigned.stderr
        assert "ARTIMON_CONFIG_KEYS" in unsigned.stdout
        told = runner.invoke(app, ["config", "status", *place_of])
        assert told.exit_code == 1
        assert f"! {name}: agent/{name}@1 is kept out" in told.stdout
        monkeypatch.setenv("ARTIMON_CONFIG_KEYS", str(tmp_path / "agent" / "config.keys"))
        signed = runner.invoke(app, push)
        assert (signed.exit_code, signed.stdout) == (0, f"agent/{name}@2\n  {name}: good\n")
        back = runner.invoke(app, ["config", "rollback", "--agent", name, *place_of, "--to", "1"])
        assert back.exit_code == 0
        rows = json.loads(runner.invoke(app, ["config", "status", *place_of, "--json"]).stdout)["agents"]
        assert {row["agent"]: row["refused"] for row in rows}[name] == ""
    program = tmp_path / "program.toml"
    program.write_text('[[flow]]\nname = "x"\nsource = { type = "exec", command = ["id"] }\nsink = { type = "null" }\n')
    pushed = runner.invoke(app, ["config", "push", str(program), "--agent", name, *place_of])
    assert pushed.exit_code == 1
    assert "must not be named by pushed configuration" in pushed.stderr, "told at the terminal already"
    assert runner.invoke(app, ["flows", "check", str(program)]).exit_code == 0, "a file of the host may"


def test_files_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    create_key_file(file, "ops")
    assert file.stat().st_mode & 0o777 == 0o600
    keys = read_keys(file)
    assert keys is not None
    signature = keys.sign("config", {"a": 1})
    assert keys.verify("config", {"a": 1}, signature) == "ops"
    for what, content, shown in (
        ("command", {"a": 1}, signature),
        ("config", {"a": 2}, signature),
        ("config", {"a": 1}, None),
        ("config", {"a": 1}, {"key": "ops"}),
        ("config", {"a": 1}, {"key": "ops", "mac": "\ud800"}),
    ):
        with pytest.raises(InvalidSignatureError):
            keys.verify(what, content, shown)
    with pytest.raises(FileExistsError):
        create_key_file(file, "ops")
    file.chmod(0o644)
    with pytest.raises(KeyFileError, match="chmod 640"):
        read_keys(file)
    file.chmod(0o600)
    for text in ("", "ops short", f"ops {'x' * 40}\nops {'y' * 40}", "\xff"):
        file.write_text(text)
        with pytest.raises(KeyFileError):
            read_keys(file)
    with pytest.raises(KeyFileError, match="missing"):
        read_keys(tmp_path / "missing")
    assert isinstance(KEYS, SigningKeys)
