"""The shop as parts of a stack: group `examples`, with ZooKeeper in its environment."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from artimon.stack import example_parts as examples
from artimon.stack.part_catalogue import ALL_PARTS, choose_parts
from artimon.stack.stack import Stack
from artimon.stack.stack_errors import ExampleMissingError
from tests.bookkeeper.polling import columns, nodes
from tests.waiting import eventually

PORTS = 21500


def test_examples_are_a_group_of_their_own() -> None:
    assert [part.name for part in choose_parts(["examples"])] == ["shop", "shop-load"]
    assert not {"shop", "shop-load"} & set(ALL_PARTS)


def test_without_a_checkout_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(examples, "FOLDER", tmp_path)
    with pytest.raises(ExampleMissingError, match="from a clone"):
        choose_parts(["examples"])
    choose_parts(["all"])


@pytest.mark.stack
def test_a_shop_that_is_killed_comes_back_and_is_visited_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARTIMON_RUN", str(tmp_path / "run"))  # nobody else takes the free instance number
    with Stack(tmp_path, ["zookeeper", "examples"], base_port=PORTS, options={"shop_rate": "100"}) as stack:
        assert stack.addresses()["ARTIMON_SHOP"].startswith("http://127.0.0.1:")
        client = KazooClient(stack.zookeeper)
        client.start(20)
        try:
            (first,) = eventually(lambda: nodes(client, "shop"))
            eventually(lambda: requests(first.port) > 20)
            stack.kill("shop", signal.SIGKILL)
            stack.wait_healthy(60)
            second = eventually(lambda: [node for node in nodes(client, "shop") if node.uuid != first.uuid])[0]
            assert second.data["instance"] == first.data["instance"]
            eventually(lambda: requests(second.port) > 20)
            (load,) = nodes(client, "shop-load")
            eventually(lambda: any(name == "shop.visits" for name, _ in columns(load.port)[1]))
        finally:
            client.stop()
            client.close()
    assert '"responses"' in (tmp_path / "logs" / "shop-load.log").read_text()  # it ended in good order


def requests(port: int) -> int:
    """Requests that this shop counted, the supervisor's own left out."""
    _, values = columns(port)
    return sum(value for (name, labels), value in values.items() if name == "shop.requests" and "/health" not in labels)
