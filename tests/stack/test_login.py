"""`artimon up --access FILE`: the API asks for a login, its alert engine for a token, and both work together."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from artimon.stack.stack import Stack
from tests.access.asgi_client import ACCESS, PASSWORD
from tests.waiting import eventually

pytestmark = pytest.mark.stack
BASE_PORT = 25_200
COMMAND = [sys.executable, "-m", "artimon.cli"]


def artimon(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("login")
    (folder / "access.yaml").write_text(ACCESS)
    options = {"access": str(folder / "access.yaml")}
    with Stack(folder / "data", ["zookeeper", "mail", "alerts", "api"], base_port=BASE_PORT, options=options) as stack:
        yield stack


def test_the_api_asks_for_a_login_and_the_page_of_the_alerts_acts_through_it(guarded: Stack) -> None:
    api = guarded.addresses()["ARTIMON_API"]
    assert requests.get(f"{api}/api/names", timeout=20).status_code == 401
    silence = {"matchers": 'host="a"', "duration": "1h", "comment": "test"}
    viewer, editor = ("vera", PASSWORD), ("eddie", PASSWORD)
    assert requests.get(f"{api}/api/alerts", auth=viewer, timeout=20).status_code == 200
    address = f"{api}/api/alerts/silences"
    assert requests.post(address, json=silence, auth=viewer, timeout=20).status_code == 403
    assert eventually(lambda: requests.post(address, json=silence, auth=editor, timeout=20).status_code == 200)
    found = requests.get(address, auth=editor, timeout=20).json()["silences"]
    assert [one["createdBy"] for one in found] == ["eddie"]


def test_the_engine_admits_the_user_who_started_the_stack_alone(guarded: Stack) -> None:
    engine = guarded.context.server("alerts.http")
    assert requests.get(f"http://{engine}/api/v2/silences", timeout=20).status_code == 401
    listed = artimon("alerts", "silence", "list", "--data", guarded.data)
    assert listed.returncode == 0, listed.stderr
    token = Path(guarded.addresses()["ARTIMON_TOKEN_FILE"])
    assert token.stat().st_mode & 0o077 == 0


def test_an_invalid_access_file_stops_the_command_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "access.yaml").write_text("users:\n- {name: anna, role: emperor}\n")
    found = artimon("up", "--data", tmp_path / "data", "--access", tmp_path / "access.yaml")
    assert found.returncode == 2
    assert "access.yaml:2:" in found.stderr
    assert not (tmp_path / "data").exists()
