"""The SDK of OpenTelemetry for JavaScript: what it exported is in the log, by HTTP and gRPC, in both temporalities."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from artimon.model.fingerprint import fingerprint
from artimon.model.labels import canonical
from tests.node.node_driver import NodeDriver, driving, require
from tests.sockets import free_port
from tests.sources.receive.agent import logged
from tests.sources.receive.real_senders import Number, SentMetrics, listens
from tests.sources.receive.test_senders import agent
from tests.waiting import eventually

LABELS = {"context": "shop", "host": "h1", "otel_scope_name": "app"}
TURNS: Sequence[Sequence[tuple[str, float, dict[str, Any]]]] = (
    [
        ("orders.placed", 2, {"route": "/"}),
        ("orders.placed", 3, {"route": "/a", "http.method": "GET"}),
        ("waiting", 5, {}),
        ("level", 1.5, {}),
        *(("wait", seconds, {}) for seconds in (0.5, 3.0, 30.0)),
        *(("fine", seconds, {}) for seconds in (0.0, 0.3, 3.0, 30.0)),
    ],
    [("orders.placed", 4, {"route": "/"}), ("waiting", -7, {}), ("level", -0.25, {}), ("wait", 4, {}), ("fine", 3, {})],
    [("orders.placed", 1, {"route": "/"}), ("waiting", 3, {}), ("fine", 0.3, {}), ("fine", 30, {}), ("wait", 1, {})],
)


def export(sdk: NodeDriver, values: Sequence[tuple[str, float, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Record values and export them; return the exports."""
    sdk.call("record", values=values)
    found: list[dict[str, Any]] = sdk.call("flush")
    return found


def export_until_taken(sdk: NodeDriver, sent: SentMetrics) -> None:
    """Export a gauge until the receiver takes it: after its restart the SDK waits before it connects again."""

    def taken() -> bool:
        exports = export(sdk, [("level", 0.5, {})])
        for one in exports:
            if one["code"] == 0:
                sent.take(one["metrics"])
        return all(one["code"] == 0 for one in exports)

    eventually(taken, "the first export", pause=1.0)


@pytest.mark.programs
@pytest.mark.timeout(900)  # the first run installs the packages
@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
@pytest.mark.parametrize("protocol", ["proto", "grpc"])
def test_what_the_sdk_exported_is_in_the_log(tmp_path: Path, protocol: str, temporality: str) -> None:
    """Over a kill of the receiver, too: each sample once, with the start time that the SDK gave."""
    folder, port, place = require("opentelemetry"), free_port(), tmp_path / "agent"
    place.mkdir()
    url = f"http://127.0.0.1:{port}" + ("/v1/metrics" if protocol == "proto" else "")
    address = f"127.0.0.1:{port}" if protocol == "proto" else f"otlp+grpc://127.0.0.1:{port}"
    sent, begun = SentMetrics(LABELS), set()
    with driving([folder / "sender.mjs", protocol, url, temporality, "shop"], folder) as sdk:
        for turns in (TURNS[:1], TURNS[1:]):
            with agent(place, address):
                eventually(lambda: listens(port), "the receiver")
                export_until_taken(sdk, sent)
                for values in turns:
                    (one,) = export(sdk, values)
                    assert one["code"] == 0, one["error"]
                    sent.take(one["metrics"])
                    starts = [p for m in one["metrics"] if m["name"] == "orders.placed" for p in m["points"]]
                    begun.add(starts[0]["start_ms"])
    texts = {fingerprint(text): text for text in sent.samples}
    found: dict[str, dict[int, Number]] = defaultdict(dict)
    buckets: dict[int, Number] = {}
    births = set()
    for source, print_, time_ms, birth_ms, value in logged(place):
        if source.startswith("otlp/") and isinstance(value, int | float):
            text = texts.get(print_, "")
            assert time_ms not in found[text] or not text, f"{text} is stored twice"
            found[text][time_ms] = value
            buckets[print_] = value
            if text.startswith("orders.placed") and 'route="/"' in text:
                births.add(birth_ms)
    assert len(sent.samples) == 4 + 5 + 2
    assert sent.differences(found) == {}
    assert births == {min(begun)}
    check_bounds(buckets, [value for turn in TURNS for name, value, _ in turn if name == "fine"])


def check_bounds(newest: dict[int, Number], recorded: Sequence[float]) -> None:
    """Check the newest count of each bucket of the exponential histogram by the values that were recorded."""
    compared = 0
    for quarter in range(-40, 41):
        bound = 2.0 ** (quarter / 4)
        for value in (bound, -bound, 0.0):
            text = canonical("fine_bucket", {**LABELS, "le": repr(value).removesuffix(".0")})
            count = newest.get(fingerprint(text))
            if count is not None:
                assert count == sum(one <= value for one in recorded), text
                compared += 1
    assert compared > 8
    assert newest[fingerprint(canonical("fine_bucket", {**LABELS, "le": "+Inf"}))] == len(recorded)
    assert math.isfinite(sum(recorded))
