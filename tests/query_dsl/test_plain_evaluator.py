"""The evaluator against a plain one that was written a second time from the documents (tests/query_dsl/plainly): equal
series, order, types, values, and errors where one of them has an error; over random worlds and random queries, and over
every golden case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artimon.model.grid import DEFAULT_LEVELS
from query_dsl import parse
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl import asking
from tests.query_dsl.plainly import Answer, World
from tests.query_dsl.test_golden import FILES, Case, check_each
from tests.query_dsl.worlds import offline_store, plain_store, shards, world_of


def effort(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


STORES: dict[str, Callable[[World], Any]] = {
    "lists": plain_store,
    "offline": offline_store,
    "shards": lambda world: shards(world, 2),
}


SHARD_LEVELS = tuple((level.step_ms, level.count) for level in DEFAULT_LEVELS)


def check(world: World, asked: list[str], store: str = "lists") -> None:
    """Each query printed, read again, and answered by both."""
    made = STORES[store](world)
    if store == "shards" and world.levels == asking.COARSE_LEVELS:
        world = replace(world, levels=SHARD_LEVELS)
    for text in asked:
        assert parse(str(parse(text))).equals(parse(text))
        found = asking.differences(text, asking.ours(text, made), asking.theirs(text, world))
        assert not found, "\n".join([text, *found[:10]])


def asked_of(questions: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(questions, min_size=4, max_size=8)


ANY_STORE = st.sampled_from(list(STORES))
SAMPLING = st.sampled_from(["lists", "offline"])
Scene = tuple[st.SearchStrategy[World], st.SearchStrategy[list[str]]]
SCENES: dict[str, Scene] = {
    "fine": (asking.worlds(), asked_of(asking.questions())),
    "coarse": (asking.worlds(coarse=True), asked_of(asking.coarse_questions())),
    "samples": (asking.worlds(), asked_of(asking.sampled_questions())),
}


@effort(12)
@given(*SCENES["fine"], ANY_STORE)
def test_answers_are_those_of_the_plain_evaluator(world: World, asked: list[str], store: str) -> None:
    """Over a store of lists, the offline store, and two real shards that reduce themselves what they can."""
    check(world, asked, store)


@effort(8)
@given(*SCENES["coarse"], ANY_STORE)
def test_coarse_answers_are_those_of_the_plain_evaluator(world: World, asked: list[str], store: str) -> None:
    """Over buckets of five minutes, each of many samples."""
    check(world, asked, store)


@effort(10)
@given(*SCENES["samples"], SAMPLING)
def test_answers_of_samples_are_those_of_the_plain_evaluator(world: World, asked: list[str], store: str) -> None:
    """Queries of raw samples, on a grid or not."""
    check(world, asked, store)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    ("scene", "store"),
    [(scene, store) for scene in SCENES for store in STORES if (scene, store) != ("samples", "shards")],
)
def test_answers_are_those_of_the_plain_evaluator_at_length(scene: str, store: str) -> None:
    @effort(700 if store == "lists" else 300)
    @given(*SCENES[scene])
    def run(world: World, asked: list[str]) -> None:
        check(world, asked, store)

    run()


@effort(8)
@given(asking.worlds(big=True), asked_of(asking.exact_questions()), ANY_STORE)
def test_integers_beyond_2_53_are_exact(world: World, asked: list[str], store: str) -> None:
    check(world, asked, store)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@effort(500)
@given(asking.worlds(big=True), asked_of(asking.exact_questions()), ANY_STORE)
def test_integers_beyond_2_53_are_exact_at_length(world: World, asked: list[str], store: str) -> None:
    check(world, asked, store)


def test_the_plain_evaluator_is_no_copy() -> None:
    """It imports only the tree and the selector from query_dsl, and nothing that computes in artimon.model."""
    from pathlib import Path

    allowed = {"Expr", "parse", "parse_selector"}
    for path in (Path(__file__).parent / "plainly").glob("*.py"):
        for line in path.read_text().splitlines():
            words = line.replace(",", " ").split()
            if words[:1] in (["import"], ["from"]) and words[1].split(".")[0] in ("query_dsl", "artimon", "varstore"):
                assert words[1] == "query_dsl.tree" or (words[1] == "query_dsl" and set(words[3:]) <= allowed), line
            assert "numpy" not in words, line


@pytest.mark.parametrize("file", FILES)
def test_the_plain_evaluator_knows_the_golden_rows(file: str) -> None:
    """Rows worked out by hand are what two evaluators find."""
    check_each(FILES[file], check_plainly)


def check_plainly(case: Case) -> None:
    found = asking.theirs(case.query, world_of(case.store), case.end + SETTLE_MS)
    if case.error:
        assert isinstance(found, str), found
        return
    assert not isinstance(found, str), found
    assert [alike(row, line) for row, line in zip(result_rows(found), case.rows, strict=True)] == [True] * len(
        case.rows
    )


def result_rows(found: Answer) -> list[list[Any]]:
    """Words of the rows, values as they are."""
    if found.points:
        shown = zip(found.series, found.types, found.points, strict=True)
        return [[name, kind, *(f"{t}:{word(v)}" for t, v in points)] for name, kind, points in shown]
    return [[name, kind, *values] for name, kind, values in zip(found.series, found.types, found.values, strict=True)]


def word(value: Any) -> str:
    from query_dsl.results.query_result import json_value
    from tests.query_dsl.test_golden import _word

    return _word(json_value(value))


def alike(row: list[Any], line: str) -> bool:
    """Equal to the golden row but for rounding."""
    said = " ".join(v if i < 2 or (isinstance(v, str) and found_point(v)) else word(v) for i, v in enumerate(row))
    if said == line:
        return True
    left, right = said.split(" "), line.split(" ")
    return len(left) == len(right) and all(a == b or near(a, b) for a, b in zip(left, right, strict=True))


def found_point(text: str) -> bool:
    return text.partition(":")[0].lstrip("-").isdigit() and ":" in text


def near(a: str, b: str) -> bool:
    try:
        return asking.agree(float(a.rpartition(":")[2]), float(b.rpartition(":")[2]))
    except ValueError:
        return False
