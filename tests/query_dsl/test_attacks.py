"""Hostile queries are refused quickly with a clear error; the process survives and its memory stays flat."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from query_dsl import QueryError, evaluate, fetch, parse
from tests.query_dsl.attacks import (
    DEEP,
    HARMLESS,
    HARMLESS_PATTERNS,
    MANY,
    NOW,
    RUNS_CODE,
    Crowd,
    escaped,
    pattern_literal,
    refusal,
    texts,
)

CPU_SECONDS = 3.0


@pytest.mark.parametrize("text", [pytest.param(text, id=name.replace("\0", "0")) for name, text in texts()])
def test_attacks_are_refused_at_once(text: str) -> None:
    begun = time.process_time()
    said = refusal(text, Crowd())
    assert time.process_time() - begun < CPU_SECONDS
    assert said.strip()
    assert len(said) < 10_000
    said.encode()


def test_no_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the functions at the end of every evaluation are reached."""

    def caught(*_: object) -> None:
        raise AssertionError("code of the text ran")

    for name in ("eval", "exec", "open", "__import__", "getattr", "breakpoint"):
        text = RUNS_CODE.get({"__import__": "import"}.get(name, name), f"{name}()")
        with monkeypatch.context() as patched:
            if name not in ("__import__", "getattr"):
                patched.setattr(f"builtins.{name}", caught)
            with pytest.raises(QueryError):
                parse(text)


def test_a_homoglyph_is_pointed_at() -> None:
    with pytest.raises(QueryError) as caught:
        parse(RUNS_CODE["homoglyph"])
    assert "^" in str(caught.value)


@pytest.mark.parametrize("name", list(HARMLESS))
def test_harmless_queries_are_answered_quickly(name: str) -> None:
    begun = time.process_time()
    assert len(evaluate(parse(HARMLESS[name]), Crowd(), NOW)) == 3
    assert time.process_time() - begun < CPU_SECONDS


@pytest.mark.parametrize("name", list(HARMLESS_PATTERNS))
def test_patterns_that_backtrack_elsewhere_do_not_here(name: str) -> None:
    """RE2 is linear; a backtracking engine would never finish a subject of 9,900 characters."""
    pattern, store = HARMLESS_PATTERNS[name], Crowd()
    begun = time.process_time()
    evaluate(parse(f"fetch('x{{host!~\"{escaped(pattern)}\"}}')"), store, NOW)
    long = f"fetch('x').map('to_string').map('replace', '.+', '{'a' * 900}').map('replace', 'a', '{'a' * 11}')"
    evaluate(parse(f"{long}.map('match', '{pattern_literal(pattern)}')"), store, NOW)
    assert time.process_time() - begun < CPU_SECONDS


@pytest.mark.parametrize(
    "text", ["fetch('x')", "fetch('x').sum(by=['host'])", "fetch('x') + fetch('x')", "fetch('x').stale('5m')"]
)
def test_a_million_series_are_refused(text: str) -> None:
    """The limit of each request refuses them before anything is copied."""
    store = Crowd(MANY)
    begun = time.process_time()
    said = refusal(text, store)
    assert time.process_time() - begun < CPU_SECONDS
    assert str(MANY) in said.replace(",", "")
    assert all(request.limit < MANY for request in store.asked)


@pytest.mark.parametrize("grow", [lambda q: -(q + 1), lambda q: q.abs(), lambda q: 1 + q, lambda q: (q > 1) & (q < 2)])
def test_trees_built_in_python_are_as_deep_as_texts_may_be(grow) -> None:  # type: ignore[no-untyped-def]
    """Neither builder nor printer exceeds the recursion limit."""
    before = query = fetch("x")
    begun = time.process_time()

    def go_on() -> None:
        nonlocal before, query
        for _ in range(100_000):
            before, query = query, grow(query)

    with pytest.raises(QueryError, match=r"deep|parts"):
        go_on()
    assert before.parts > 400 or parse(str(before)).equals(before)
    assert len(str(before)) < 500_000
    assert time.process_time() - begun < CPU_SECONDS


def test_a_long_sum_prints_and_parses() -> None:
    query = fetch("x")
    for _ in range(400):
        query = query + 1
    assert parse(str(query)).equals(query)
    assert "more than" in refusal(str(query) + " + 1" * 200, Crowd())


def test_names_of_builtins_are_just_texts() -> None:
    """Quoted text is data."""
    matrix = evaluate(fetch("x").named("__import__('os')").at("now"), Crowd(), NOW)
    assert matrix.names == ["__import__('os')"] * 3


def test_deep_ones_name_the_limit() -> None:
    for name in ("parentheses just too deep", "set operators just too deep"):
        assert "100 deep" in refusal(DEEP[name](), Crowd())


def test_memory_stays_flat_under_all_of_them() -> None:
    """Run all twice in a process with a limited address space."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.query_dsl.attacks"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2_000:]
    marks = [int(word) for word in done.stdout.split()]
    assert len(marks) == 2
    assert marks[-1] - marks[0] < 16 * 1024, marks
