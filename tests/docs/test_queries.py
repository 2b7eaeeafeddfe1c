"""Every query that a document shows has an answer, also where a part of its data is missing."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from query_dsl import QueryError, parse
from tests.alerts.worlds import MINUTE, START
from tests.alerts.worlds import World as Engine
from tests.docs.queries import FENCE, queries_of, worlds_of
from tests.docs.test_architecture import ROOT

DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "alerts/rules").glob("*.yaml")),
]
SHOWN = {path: found for path in DOCUMENTS if (found := queries_of(path.read_text()))}
NO_PARTNER = "have no partner"
NEEDS_HISTORY = "fetch('x', resolution=\"raw\")"


def failures(text: str) -> list[str]:
    """Return the expected error for each kind of missing data."""
    query, found = parse(text), []
    for world in worlds_of(query):
        try:
            world.store.query(query)
        except QueryError as problem:
            found.append(f"{world.name}: {problem}")
    return found


@pytest.mark.parametrize("document", SHOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_queries_are_answered_with_holes_in_the_data(document: Path) -> None:
    found = {text: failed for text in SHOWN[document] if text != NEEDS_HISTORY and (failed := failures(text))}
    assert found == {}


def test_enough_is_found() -> None:
    counts = {path.name: len(found) for path, found in SHOWN.items()}
    assert counts["README.md"] == 1
    assert {
        "first_ten_minutes.md",
        "first_notebook.md",
        "query.md",
        "migrating.md",
        "operations.md",
        "alerts.md",
        "api.md",
        "notebook.md",
        "kafka-gap.yaml",
    } <= counts.keys()
    assert counts["functions.md"] > 120
    assert sum(counts.values()) > 190


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("```sh\nartimon query \"fetch('a').rate()\" # ask\n```", ["fetch('a').rate()"]),
        ('```\ncurl -G "$X/api/query" --data-urlencode "q=fetch(\'a\')"\n```', ["fetch('a')"]),
        ("```\ncurl x -d '{\"q\": \"fetch('\"'a'\"')\"}'\n```", ["fetch('a')"]),
        ("```python\ndb.fetch('a').mean(by=['b']).plot()\n```", ["fetch('a').mean(by=['b'])", "fetch('a')"]),
        ("```yaml\n- expr: fetch('a') > 1\n```", ["fetch('a') > 1"]),
        ("| x | `fetch('a') \\| fetch('b')` |", ["fetch('a') | fetch('b')"]),
        ("`fetch(…)`, `.rate()` and `fetch` are none", []),
    ],
)
def test_where_queries_stand(line: str, found: list[str]) -> None:
    assert queries_of(line) == found


def test_a_join_without_partners_would_be_noticed() -> None:
    failed = failures("apply(div, fetch('a'), fetch('b'), on=['host'], unmatched='error')")
    assert all(NO_PARTNER in text for text in failed)
    assert [text.partition(":")[0] for text in failed] == [
        "a series of a is missing",
        "a has said nothing for days",
        "a series of a lacks host",
        "a series of b is missing",
        "b has said nothing for days",
        "a series of b lacks host",
    ]


def test_the_alert_of_the_tutorial_fires_beside_a_volume_without_a_partner(tmp_path: Path) -> None:
    """One agent is older than its volume's size, another has lost it: the full volume is still told of."""
    tutorial = (ROOT / "docs/tutorials/first_alert.md").read_text()
    (rules,) = (block for _, block in FENCE.findall(tutorial) if block.startswith("rules:"))
    world = Engine(tmp_path)
    world.write(re.sub(r"for: 10m", "for: 0s", textwrap.dedent(rules)))
    values = {"free": {"full": 5, "empty": 90, "no-size": 1}, "size": {"full": 100, "empty": 100, "no-free": 1}}
    for kind, volumes in values.items():
        for host, value in volumes.items():
            points = [(START + minute * MINUTE - 10_000, value) for minute in range(1, 4)]
            world.store.add(f"host.volume.{kind}.bytes", {"host": host, "volume": "/"}, points)
    for _ in range(3):
        world.tick()
    assert world.error("volume-nearly-full") == ""
    assert world.told() == ["firing full"]
    world.close()
