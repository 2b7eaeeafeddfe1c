"""bookkeeper.export.final_file: the bytes of docs/formats/final.md, their folder, and programs that leave them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.export import final_file as final
from bookkeeper.export.final_file import FinalError, decode_payload, write_final_snapshot
from bookkeeper.rpc.poll_service import idl
from bookkeeper.rpc.thrift_messages import FrameError, MessageHead, decode_struct
from tests.bookkeeper.polling import REPOSITORY, application, end, hear, nodes, say, unpack

GOLDEN = REPOSITORY / "tests" / "golden" / "final" / "shop.final"
UUID = bytes(range(16))
NOWHERE = "127.0.0.1:1"


def decoded(data: bytes) -> Any:
    return decode_struct(MessageHead(decode_payload(data), "final", 0, 0, 0), idl().Final())


def golden() -> Any:
    """The struct in the golden bytes."""
    endpoint = idl().Endpoint(UUID, 1_800_000_000_000, "shop", "0", 1_800_000_060_000, 1, 1000)
    schema = idl().Schema(["orders", "state"], [{"part": "x"}, {}], b"\0\3", b"\1\0", {"orders": "Orders"}, {})
    cells = (132).to_bytes(8, "little") + bytes(8)
    columns = idl().Columns(
        endpoint, bytes(reversed(UUID)), schema, cells, ["ünïcødé"], b"\x01\x02\x03\x04", "agent1", b"memo"
    )
    return idl().Final(columns, "10.1.2.3", 1_800_000_030_000)


@pytest.fixture
def dropin(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "dropin" / "final"
    folder.mkdir(parents=True)
    folder.chmod(0o1777)
    yield folder.parent
    folder.chmod(0o1777)


def files(dropin: Path) -> list[Path]:
    return sorted((dropin / "final").iterdir())


def test_golden_bytes() -> None:
    """Written once, by the first version; still written, and still read."""
    assert decoded(GOLDEN.read_bytes()) == golden()
    assert final.encode_final(golden()) == GOLDEN.read_bytes()
    page = (REPOSITORY / "docs" / "formats" / "final.md").read_text()
    assert f"`{GOLDEN.read_bytes()[:8].decode()}`" in page


def test_damage_is_noticed() -> None:
    data = GOLDEN.read_bytes()
    for at in range(len(data)):
        with pytest.raises(FrameError):
            decode_payload(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(FrameError):
        decode_payload(data[:-1])


def test_a_file_appears_whole(dropin: Path) -> None:
    os.umask(os.umask(0o077))
    write_final_snapshot(str(dropin), UUID, b"abc")
    (path,) = files(dropin)
    assert (path.name, path.read_bytes()) == (UUID.hex() + ".final", b"abc")
    assert path.stat().st_mode & 0o777 == 0o644


def full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_disk_that_is_full(dropin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(FinalError, match="No space left"):
        write_final_snapshot(str(dropin), UUID, b"abc")
    assert files(dropin) == []


def test_a_disk_that_is_nearly_full(dropin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(final, "MIN_FREE_FRACTION", 1)
    with pytest.raises(FinalError, match="a tenth"):
        write_final_snapshot(str(dropin), UUID, b"abc")


@pytest.mark.parametrize(
    ("limit", "value"), [("MAX_FILES", 3), ("MAX_FILES_OF_USER", 3), ("MAX_TOTAL", 10), ("MAX_TOTAL_OF_USER", 10)]
)
def test_a_program_that_restarts_in_a_loop(
    dropin: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """It fills its share, and no more."""
    monkeypatch.setattr(final, limit, value)
    for number in range(3):
        write_final_snapshot(str(dropin), number.to_bytes(16, "big"), b"abc")
    with pytest.raises(FinalError, match="start the agent"):
        write_final_snapshot(str(dropin), UUID, b"abc")
    assert len(files(dropin)) == 3


def test_a_snapshot_that_is_too_large(dropin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(final, "MAX_BYTES", 2)
    with pytest.raises(FinalError, match="at most 2"):
        write_final_snapshot(str(dropin), UUID, b"abc")


def test_links_are_not_followed(dropin: Path, tmp_path: Path) -> None:
    """A link in the place of the scratch file, of the file, and of the folder."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    scratch = dropin / "final" / f".{UUID.hex()}.{os.getpid()}.tmp"
    scratch.symlink_to(victim)
    with pytest.raises(FinalError, match="exists"):
        write_final_snapshot(str(dropin), UUID, b"abc")
    scratch.unlink()
    (dropin / "final" / f"{UUID.hex()}.final").symlink_to(victim)
    write_final_snapshot(str(dropin), UUID, b"abc")
    assert victim.read_bytes() == b"mine"
    other = tmp_path / "other"
    other.mkdir()
    (other / "final").symlink_to(dropin / "final")
    with pytest.raises(FinalError, match=r"Not a directory|symbolic links"):
        write_final_snapshot(str(other), UUID, b"abc")


def test_a_folder_where_others_may_replace_files(dropin: Path) -> None:
    (dropin / "final").chmod(0o777)
    with pytest.raises(FinalError, match=r"chmod \+t"):
        write_final_snapshot(str(dropin), UUID, b"abc")
    with pytest.raises(FinalError, match="No such file"):
        write_final_snapshot(str(dropin / "nowhere"), UUID, b"abc")


PATIENT = """
import bookkeeper
from bookkeeper.process import process_endpoint as endpoint
endpoint.REGISTRATION_TIMEOUT_S = endpoint.EXIT_TIMEOUT_S = 60.0
"""
PROGRAM = (
    PATIENT
    + """
bookkeeper.add_to_integer_var("n", {"a": "x"}, 5)
"""
)


@pytest.mark.parametrize(
    "ending",
    [
        "pass",
        "import sys; sys.exit(0)",
        "import os; bookkeeper.leave(); os._exit(0)",
        "import os, sys; bookkeeper.leave(); os.execv(sys.executable, [sys.executable, '-c', ''])",
        "import multiprocessing as m\nbookkeeper.default().online = False\n"
        "m.get_context('fork').Process(target=lambda: (setattr(bookkeeper.default(), 'online', True), "
        "bookkeeper.add_to_integer_var('n', {'a': 'x'}, 5))).start()",
    ],
    ids=["end", "exit", "_exit", "exec", "multiprocessing"],
)
def test_a_program_leaves_its_values(tmp_path: Path, dropin: Path, ending: str) -> None:
    """A process without poller and ZooKeeper leaves a final snapshot."""
    script = (PATIENT if "multiprocessing" in ending else PROGRAM) + ending + "\n"
    program = application(script, tmp_path, ARTIMON_ZOOKEEPER=NOWHERE, ARTIMON_DROPIN=str(dropin))
    end(program, 60.0)
    (path,) = files(dropin)
    found = decoded(path.read_bytes())
    assert unpack(found.columns, found.columns.schema) == {("n", '{"a": "x"}'): 5}
    assert path.stem == found.columns.endpoint.uuid.hex()
    assert (found.columns.endpoint.instance, found.columns.endpoint.uid) == ("0", os.geteuid())
    assert (found.columns.poller, found.polled_ms) == (None, 0)


@pytest.mark.parametrize("ending", ["pass", "time.sleep(0.2)", "bookkeeper.leave(); os._exit(0)"])
def test_a_set_up_that_takes_long_loses_nothing(tmp_path: Path, dropin: Path, ending: str) -> None:
    """On a busy machine a process may end before it is set up, however old it is."""
    script = f"""
import os, time
import bookkeeper
from bookkeeper.process import process_endpoint as endpoint
endpoint.REGISTRATION_TIMEOUT_S, endpoint.EXIT_TIMEOUT_S = 0.1, 60.0
load = endpoint._import_all
endpoint._import_all = lambda: (time.sleep(0.6), load())
bookkeeper.add_to_integer_var("n", {{}}, 5)
{ending}
"""
    end(application(script, tmp_path, ARTIMON_ZOOKEEPER=NOWHERE, ARTIMON_DROPIN=str(dropin)), 60.0)
    (path,) = files(dropin)
    assert decoded(path.read_bytes()).columns.values == (5).to_bytes(8, "little")


def test_a_set_up_that_failed_does_not_hold_up_the_end(tmp_path: Path, dropin: Path) -> None:
    script = """
from time import monotonic
import bookkeeper
from bookkeeper.process import process_endpoint as endpoint
endpoint._listen = lambda *_: open("/nowhere")
bookkeeper.add_to_integer_var("n", {}, 5)
bookkeeper.default().endpoint._prepared.wait(30)
began = monotonic()
bookkeeper.default().close(30.0)
assert monotonic() - began < 20
"""
    end(application(script, tmp_path, ARTIMON_ZOOKEEPER=NOWHERE, ARTIMON_DROPIN=str(dropin)), 60.0)
    assert files(dropin) == []


def test_a_hanging_disk_does_not_hold_up_the_end(tmp_path: Path, dropin: Path) -> None:
    script = PROGRAM + "import os, time\nos.fsync = lambda _: time.sleep(600)\nendpoint.EXIT_TIMEOUT_S = 0.1\n"
    end(application(script, tmp_path, ARTIMON_ZOOKEEPER=NOWHERE, ARTIMON_DROPIN=str(dropin)), 60.0)


def test_without_a_folder_nothing_is_left(tmp_path: Path) -> None:
    dropin = tmp_path / "dropin"
    dropin.mkdir()
    end(application(PROGRAM, tmp_path, ARTIMON_ZOOKEEPER=NOWHERE, ARTIMON_DROPIN=str(dropin)), 60.0)
    assert list(dropin.iterdir()) == []


@pytest.mark.stack
@pytest.mark.parametrize(("agent", "left"), [("agent1", 0), (None, 1)])
def test_only_an_agent_takes_the_last_values(
    zookeeper: str, zk: Any, context: str, tmp_path: Path, dropin: Path, agent: str | None, left: int
) -> None:
    """A caller without a name keeps nothing."""
    from bookkeeper.rpc.framed_server import FramedClient
    from tests.waiting import eventually

    script = PROGRAM + 'print("up", flush=True)\ninput()\n'
    program = application(
        script, tmp_path, ARTIMON_ZOOKEEPER=zookeeper, ARTIMON_CONTEXT=context, ARTIMON_DROPIN=str(dropin)
    )
    hear(program)
    (node,) = eventually(lambda: nodes(zk, context))
    poller = idl().Poller(agent, 0, b"memo") if agent else None
    with FramedClient(idl().Bookkeeper, node.host, node.port, 30.0) as calls:
        calls.getColumns(b"", poller)
        say(program, "end")
        eventually(lambda: not nodes(zk, context))
        calls.getColumns(b"", poller)
    end(program, 60.0)
    assert len(files(dropin)) == left
