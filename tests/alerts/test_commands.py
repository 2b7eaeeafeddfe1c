"""Commands about alerts: list, ack, silence, history."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner, Result

from alerts.state.publication import ALERTS_PATH
from artimon.cli.program import app
from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.zookeeper_client import EphemeralNode, zookeeper_session
from tests.alerts.api_client import api_of
from tests.alerts.test_silences import routed  # noqa: F401
from tests.alerts.worlds import MINUTE, World
from tests.waiting import eventually

Command = Callable[..., str]


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, ["alerts", *words])


@pytest.fixture
def engine(routed: World) -> Iterator[str]:  # noqa: F811
    """Address of an engine with two alerts, at the time of the system."""
    routed.clock.advance(SYSTEM_CLOCK.now_ms() - routed.clock.now_ms())
    routed.time = (routed.clock.now_ms() - 15_000) // MINUTE * MINUTE - MINUTE
    routed.clock.advance(-MINUTE)
    routed.tick({"a": 0, "b": 0})
    with api_of(routed) as api:
        yield api.address


@pytest.fixture
def command(engine: str, routed: World) -> Command:  # noqa: F811
    def run(*words: str, code: int = 0) -> str:
        result = invoke(*words, "--engine", engine)
        assert result.exit_code == code, result.output
        routed.clock.advance(max(0, SYSTEM_CLOCK.now_ms() - routed.clock.now_ms()))
        return result.stdout if code == 0 else result.output

    return run


def test_alerts_are_listed_silenced_and_acknowledged(command: Command) -> None:
    lines = command("list").splitlines()
    assert sorted(line.partition("down ")[2] for line in lines) == [
        "host=a severity=page  a is 0",
        "host=b severity=page  b is 0",
    ]
    assert len(json.loads(command("list", "--filter", "host=a", "--json"))) == 1
    shown = command("silence", "add", "host=a", "--preview")
    assert "host=a" in shown
    assert command("silence", "list") == ""
    id = command("silence", "add", "host=a", "--comment", "new disk", "--for", "2h", "--author", "ana").strip()
    assert f"[silenced by {id}]" in command("list", "--filter", "host=a")
    (line,) = command("silence", "list").splitlines()
    assert line.startswith(f"{id}  active  until ")
    assert line.endswith('host="a"  ana  new disk')
    command("silence", "expire", id, "--author", "bo")
    assert command("silence", "list") == ""
    assert "expired" in command("silence", "list", "--expired")
    fingerprint = command("list", "--filter", "host=b").split()[0]
    command("ack", fingerprint[:8], "--comment", "on it", "--author", "ana", "--for", "2h")
    assert "[acknowledged by ana: on it]" in command("list", "--filter", "host=b")
    command("ack", "--group", "alertname=down", "--comment", "both", "--author", "bo")
    command("ack", "--filter", "host=b", "--withdraw", "--author", "bo")
    assert "acknowledged" not in command("list", "--filter", "host=b")
    actions = [line.split("  ")[1:3] for line in command("history", "--actions").splitlines()]
    assert actions[:2] == [["bo", "acknowledgement withdrawn"], ["bo", "acknowledged"]]
    assert actions[-2:] == [["bo", "silence expired"], ["ana", "silence created"]]
    assert [line.split("  ")[2] for line in command("history", fingerprint).splitlines()] == ["firing"]
    assert len(json.loads(command("history", "--json", "-n", "1"))) == 1


def test_a_silence_for_everything_asks_back(command: Command, routed: World) -> None:  # noqa: F811
    told = command("silence", "add", "alertname=~.+", "--comment", "x", code=1)
    assert "hides every alert" in told
    assert "--force" in told
    assert not routed.engine.silences.silences
    assert command("silence", "add", "alertname=~.+", "--comment", "x", "--force").strip()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["ack", "--comment", "x"], 2, "name alerts"),
        (["ack", "z"], 2, "--comment"),
        (["ack", "z", "--comment", "x"], 1, "0 alerts that fire"),
        (["ack", "--group", "x", "--comment", "x"], 2, "LABEL=VALUE"),
        (["silence", "add", "host"], 2, "not a matcher"),
        (["silence", "add", "host=a"], 2, "--comment"),
        (["silence", "add", "host=a", "--for", "x", "--comment", "x"], 2, "duration"),
        (["silence", "expire", "x"], 1, "not known"),
        (["list", "--filter", "="], 1, "not a matcher"),
    ],
)
def test_wrong_use_is_named(command: Command, words: list[str], code: int, text: str) -> None:
    assert text in " ".join(command(*words, code=code).replace("│", " ").split())


def test_options_of_the_engine_are_not_taken_by_other_commands() -> None:
    result = invoke("--settle", "5s", "list")
    assert (result.exit_code, "--settle" in result.output) == (2, True)


def test_the_engine_is_found_in_zookeeper(engine: str, routed: World, zookeeper: str) -> None:  # noqa: F811
    place = f"{zookeeper}/alert.commands"
    with zookeeper_session(zookeeper, 60) as root:
        root.ensure_path("/alert.commands")
    assert "no alert engine runs" in invoke("list", "--zookeeper", place).output
    routed.engine.api = engine
    with zookeeper_session(place, 60) as client:
        node = EphemeralNode(client, f"{ALERTS_PATH}/e", routed.engine.display({}))
        node.start()
        eventually(lambda: client.exists(f"{ALERTS_PATH}/e") is not None, "it is registered")
        result = invoke("list", "--zookeeper", place)
        assert len(result.stdout.splitlines()) == 2, result.output
        node.stop(5)
