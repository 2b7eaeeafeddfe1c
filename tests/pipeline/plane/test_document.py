"""pipeline.control.config_document: valid configuration documents, and their differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from artimon.model.clock import ManualClock
from pipeline.control.agent_commands import AgentMode
from pipeline.control.agent_controls import AgentControls
from pipeline.control.config_document import ConfigError, canonical, difference, merge_layers, parse_document, read_text
from pipeline.control.control_plane import ControlPlane
from pipeline.control.control_state import ControlState, ControlStateFile
from pipeline.control.local_config import LocalConfig
from pipeline.control.rollout import Layer, RolloutState, VersionId, with_layers

GOOD = """
[metrics]
poll = "30s"
level = "kafka"
quota = "2GiB"
collectors = ["rack-7", "default"]

[[flow]]
name = "access"
[flow.source]
type = "tail"
"""


def test_a_document_is_read_from_toml_and_json() -> None:
    found = read_text(GOOD)
    document = parse_document(found)
    assert dict(document.metrics) == {
        "poll": 30_000,
        "level": "kafka",
        "quota": 2 * 1024**3,
        "collectors": ("rack-7", "default"),
    }
    assert list(document.flows) == ["access"]
    assert read_text(canonical(found)) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("[metric]\n", "did you mean metrics", id="unknown_table"),
        pytest.param("[metrics]\npol = '30s'", r"did you mean poll\?", id="unknown_setting"),
        pytest.param("[metrics]\npoll = '30'", "from 1s to 3600s", id="no_duration"),
        pytest.param("[metrics]\npoll = '0.5s'", "from 1s to 3600s", id="too_short"),
        pytest.param("[metrics]\nlevel = 'disk'", "one of kafka, hdfs", id="no_level"),
        pytest.param("[metrics]\nquota = true", "write bytes", id="no_size"),
        pytest.param("[metrics]\nquota = '1MiB'", "at least 16 MiB", id="too_small"),
        pytest.param("[metrics]\ncollectors = '10.0.0.1:8710'", "never a host", id="a_host"),
        pytest.param("[metrics]\ncollectors = ['a', 'a']", "names of groups", id="twice"),
        pytest.param("[metrics]\npoll = 1979-05-27", "write a duration", id="a_date"),
        pytest.param("metrics = 3", "write a table", id="no_table"),
        pytest.param("[[flow]]\nx = 1", "has no name", id="flow_without_name"),
        pytest.param("[[flow]]\nname='a'\n[[flow]]\nname='a'", "two flows are named 'a'", id="flow_twice"),
        pytest.param("a = [", "neither TOML nor JSON", id="garbage"),
    ],
)
def test_invalid_documents_are_refused_with_the_remedy(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_document(read_text(text))


def test_the_size_of_a_document_is_limited() -> None:
    with pytest.raises(ConfigError, match="512 KiB"):
        canonical({"flow": [{"name": "a", "text": "x" * 600_000}]})


def test_layers_are_merged_setting_by_setting() -> None:
    group: dict[str, Any] = {
        "metrics": {"poll": "60s", "level": "hdfs"},
        "flow": [{"name": "a", "n": 1}, {"name": "b", "n": 1}],
    }
    own: dict[str, Any] = {
        "metrics": {"poll": "10s"},
        "flow": [{"name": "b", "n": 2}, {"name": "a", "off": True}, {"name": "c"}],
    }
    assert merge_layers([group, own]) == {
        "metrics": {"poll": "10s", "level": "hdfs"},
        "flow": [{"name": "b", "n": 2}, {"name": "c"}],
    }


def test_only_changed_settings_are_named() -> None:
    old = parse_document({"metrics": {"poll": "60s", "level": "hdfs"}, "flow": [{"name": "a"}, {"name": "b"}]})
    new = parse_document({"metrics": {"poll": "30s", "level": "hdfs"}, "flow": [{"name": "b", "x": 1}, {"name": "c"}]})
    change = difference(old, new)
    assert change.settings == {"poll": (60_000, 30_000)}
    assert (change.added, change.removed, change.changed) == (("c",), ("a",), ("b",))
    assert difference(new, new).is_empty


def test_a_local_file_is_read_again_when_it_changes_and_kept_when_it_breaks(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    file = LocalConfig(path)
    assert file.read() is None
    path.write_text("[metrics]\npoll = '30s'")
    first = file.read()
    assert first is not None
    path.write_text("[metrics]\npoll = 'broken'")
    assert file.read() == first
    assert "poll" in file.problem
    path.write_text("[metrics]\npoll = '20s'")
    second = file.read()
    assert second is not None
    assert second.text != first.text
    assert not file.problem
    path.rename(tmp_path / "away")
    assert file.read() == second
    assert "No such file" in file.problem
    (tmp_path / "away").rename(path)
    assert file.read() == second
    assert not file.problem


def test_saved_state_survives_and_damaged_state_is_quarantined(tmp_path: Path) -> None:
    layer = Layer(VersionId("agent/a", "l", 3), canonical({"metrics": {"poll": "30s"}}))
    kept = ControlState(with_layers(RolloutState(), {"agent/a": layer}), groups={"g": {"m": {"host": "h", "port": 1}}})
    ControlStateFile(tmp_path).save(kept)
    assert ControlStateFile(tmp_path).load() == kept
    path = tmp_path / "plane.json"
    path.write_text(path.read_text().replace("30s", "31s"))
    damaged = ControlStateFile(tmp_path)
    assert damaged.load() == ControlState()
    assert "digest" in damaged.damaged
    assert (tmp_path / "plane.damaged").exists()


def test_a_full_disk_leaves_the_running_version_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No action without a saved state; the agent starts all the same."""
    done: list[object] = []
    runtime = AgentControls(done.append, lambda: 0, lambda: "")
    runtime.on_setting("poll", done.append)
    local = tmp_path / "agent.toml"
    local.write_text("[metrics]\npoll = '30s'")
    plane = ControlPlane(KazooClient("127.0.0.1:1"), "a", (), tmp_path / "plane", runtime, ManualClock(), local=local)

    def full(memory: ControlState) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plane._file, "save", full)
    plane.begin()
    assert done == [AgentMode.RUNNING]
    assert "No space left" in plane.problems()[0]
    monkeypatch.undo()
    plane._advance()
    assert done == [AgentMode.RUNNING, 30_000]
    assert plane.figures()["running"] == "file@0"
    local.write_text("[metrics]\npoll = 'broken'")
    plane._read_file()
    assert any("poll" in text for text in plane.problems()), "an unusable file is reported"
