"""The example shop: it serves, it counts what it answered, and its visitors end cleanly."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kazoo.client import KazooClient

from tests.bookkeeper.polling import columns, nodes
from tests.examples.shopping import EXAMPLES, example, shop, visit
from tests.waiting import eventually

ALONE = {"ARTIMON_DISABLED": "1"}
FAST = ("--latency", "0", "--seed", "7")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A shop that never fails and is registered nowhere."""
    with shop(*FAST, "--failures", "0", **ALONE) as (_, url):
        yield urlsplit(url).netloc


def fetch_page(address: str, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str, str]:
    """Status, body and the visitor's cookie."""
    connection = http.client.HTTPConnection(address, timeout=20)
    try:
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers.get("Set-Cookie", "").partition(";")[0]
    finally:
        connection.close()


def test_it_is_instrumented_in_three_lines() -> None:
    text = (EXAMPLES / "shop.py").read_text().splitlines()
    lines = [line for line in text if re.search(r"\bbookkeeper\b.*# \d$", line)]
    assert [line[-1] for line in lines] == ["1", "2", "3"]
    code = "\n".join(line.partition("#")[0] for line in text)
    assert len(re.findall(r"\bbookkeeper\b", code)) == 3


def test_a_visitor_buys(address: str) -> None:
    status, page, cookie = fetch_page(address, "GET", "/")
    assert (status, "/product/3" in page) == (200, True)
    assert "kettle" in fetch_page(address, "GET", "/product/3", Cookie=cookie)[1]
    assert fetch_page(address, "POST", "/cart", "product=3", Cookie=cookie)[0] == 200
    assert "kettle" in fetch_page(address, "GET", "/cart", Cookie=cookie)[1]
    assert "kettle" not in fetch_page(address, "GET", "/cart")[1]  # another visitor
    assert fetch_page(address, "POST", "/checkout", Cookie=cookie)[:2] == (200, "thank you for 1 things")
    assert fetch_page(address, "POST", "/checkout", Cookie=cookie)[:2] == (409, "the cart is empty")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/product/99", "", 404),
        ("GET", "/product/..%2f", "", 404),
        ("GET", "/nowhere", "", 404),
        ("POST", "/", "", 405),
        ("POST", "/cart", "product=x", 400),
        ("POST", "/cart", "p" * 5_000, 413),
    ],
)
def test_what_is_wrong_is_answered(address: str, method: str, path: str, body: str, status: int) -> None:
    assert fetch_page(address, method, path, body, Cookie='visitor="<script>"')[0] == status


def test_a_cart_is_not_endless(address: str) -> None:
    cookie = fetch_page(address, "GET", "/")[2]
    statuses = [fetch_page(address, "POST", "/cart", "product=1", Cookie=cookie)[0] for _ in range(21)]
    assert statuses == [200] * 20 + [409]


def counted(values: dict[tuple[str, str], Any]) -> Counter[str]:
    """Requests by "route status"."""
    found = Counter[str]()
    for (name, labels), value in values.items():
        if name == "shop.requests":
            at = json.loads(labels)
            found[f"{at['route']} {at['status']}"] += value
    return found


@pytest.mark.stack
def test_the_variables_equal_what_the_visitors_saw(zookeeper: str, tmp_path: Path) -> None:
    client = KazooClient(zookeeper)
    client.start(20)
    places = {"ARTIMON_ZOOKEEPER": zookeeper, "ARTIMON_RUN": str(tmp_path), "ARTIMON_CONTEXT": "shop-test"}
    try:
        with shop(*FAST, "--failures", "5", **places) as (running, url):
            seen = visit(url, "--rate", "400", "--seconds", "2", **ALONE)
            (endpoint,) = eventually(lambda: nodes(client, "shop-test"))
            _, values = columns(endpoint.port)
            assert counted(values) == seen["responses"]
            assert sum(seen["responses"].values()) > 100
            assert len({text.split()[1] for text in seen["responses"]}) >= 3  # errors happen
            assert seen["failures"] == {}
            seconds = {json.loads(labels)["route"]: v for (name, labels), v in values.items() if name == "shop.seconds"}
            assert set(seconds) == {text.split()[0] for text in seen["responses"]}
            assert all(0 < value < 10 for value in seconds.values())
            running.send_signal(signal.SIGTERM)
            columns(eventually(lambda: endpoint).port)  # it serves a last poll
            running.communicate(timeout=20)
            assert running.returncode == 0
        assert eventually(lambda: not nodes(client, "shop-test"))
    finally:
        client.stop()
        client.close()


def test_the_load_keeps_to_its_rate_and_ends_by_sigterm(address: str) -> None:
    with example("shop_load", "--url", f"http://{address}", "--rate", "20", "--users", "30", **ALONE) as running:
        with pytest.raises(Exception, match="timed out"):
            running.communicate(timeout=1.5)
        running.send_signal(signal.SIGTERM)
        told, errors = running.communicate(timeout=20)
    assert (running.returncode, errors) == (0, "")
    assert 1 <= sum(json.loads(told)["responses"].values()) <= 60


def test_the_load_survives_a_shop_that_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    seen = visit(f"http://127.0.0.1:{port}", "--rate", "50", "--seconds", "0.5", **ALONE)
    assert seen["responses"] == {}
    assert seen["failures"]["ConnectionRefusedError"] == seen["visits"]["failed"] >= 5


def test_the_load_refuses_what_is_no_rate() -> None:
    with example("shop_load", "--rate", "0", **ALONE) as running:
        _, errors = running.communicate(timeout=20)
    assert running.returncode == 2
    assert "rate" in errors
