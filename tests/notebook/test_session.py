"""Sessions: expressions know where they run, nothing runs by being looked at, mistakes say what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import artimon
from artimon.model.clock import ManualClock
from artimon.model.select import SelectError
from artimon.session import SeriesList, Session
from artimon.stack.stack_errors import NotRunningError
from query_dsl import QueryError, apply, fetch, parse
from query_dsl.language.expression_runner import clear_default_runner, set_default_runner
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.stores.query_limits import LimitExceeded, Limits
from tests.query_dsl.plain_store import MINUTE, PlainStore
from varstore.cluster.varstore_client import VarstoreClient


def small_store() -> PlainStore:
    """Two racks, two minutes."""
    store = PlainStore()
    for rack, warm in (("r1", 20.0), ("r2", 30.0)):
        store.add("temperature", {"rack": rack}, [(MINUTE, warm), (2 * MINUTE, warm + 1)])
    return store.add("odd", {"x": "<b>name\x1b"}, [(MINUTE, 1)])


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(small_store(), "nowhere", ManualClock(2 * MINUTE + SETTLE_MS)) as opened:
        yield opened


def asked(session: Session) -> int:
    """Return the number of reads of buckets from the store."""
    store = session._open_store()
    assert isinstance(store, PlainStore)
    return len(store.requests)


def test_nothing_runs_before_collect(session: Session) -> None:
    query = (session.fetch("temperature") * 2).mean(by=[]).range("2m")
    assert repr(query) == "<query (fetch('temperature') * 2).mean(by=[]).range('2m')>"
    with pytest.raises(QueryError):
        bool(query)
    with pytest.raises(QueryError, match="collect"):
        list(query)
    assert asked(session) == 0
    matrix = query.collect()
    assert matrix.tolist(0) == [50.0, 52.0]
    assert matrix.query == str(query)
    assert query.to_pandas().iloc[-1, 0] == 52.0


def test_limits_are_those_of_the_machine_unless_the_session_has_others(session: Session) -> None:
    assert session.default_limits == Limits.of_machine()
    session.default_limits = Limits(series=1)
    with pytest.raises(LimitExceeded, match="2 series fit"):
        session.query("fetch('temperature').range('2m')")


def test_every_way_of_building_keeps_the_session(session: Session) -> None:
    a, plain = session["temperature"], fetch("temperature")
    queries = [
        *(-a, ~(a > 1), 1 + a, a + plain, plain + a, plain - (2 * a), apply("sub", plain, a, on=["rack"])),
        *(a.range("2m"), a.between(0, 120_000), a.at("now"), a.map("mean", "1m"), a.bucketize("mean", "5m")),
        *(a.named("x"), a.abs(), a.clamp(0, 1), a.reduce("sum", by=[]), a.rate(), a.offset("1m")),
        *(session.parse("fetch('temperature')"), (a > 25) & (plain < 40)),
    ]
    for query in queries:
        assert query.collector is session, query
        assert parse(str(query)).equals(query)
    assert plain.collector is None
    assert all(query.collect() is not None for query in queries[:8])


def test_operands_of_two_sessions_are_refused(session: Session) -> None:
    other = Session(small_store(), "elsewhere")
    with pytest.raises(QueryError, match="two sessions"):
        session.fetch("temperature") + other.fetch("temperature")
    with pytest.raises(QueryError, match="two sessions"):
        other.fetch("temperature").bound(session)


def test_a_plain_expression_goes_to_the_session_opened_last(session: Session) -> None:
    query = fetch("temperature").sum(by=[]).range("1m")
    with pytest.raises(QueryError, match=r"artimon\.connect\(\)"):
        query.collect()
    set_default_runner(session)
    assert query.collect().tolist(0) == [52.0]
    clear_default_runner(Session(small_store(), "another"))  # it was not the last one
    assert query.collect().tolist(0) == [52.0]
    session.close()
    with pytest.raises(QueryError, match=r"artimon\.connect\(\)"):
        query.collect()


def test_a_closed_session_says_so(session: Session) -> None:
    query = session.fetch("temperature")
    session.close()
    session.close()
    for question in (query.collect, session.names, session.labels, lambda: session.find("x")):
        with pytest.raises(QueryError, match="closed"):
            question()
    assert session._ipython_key_completions_() == []
    assert repr(session) == "<artimon session: nowhere, closed>"


@pytest.mark.parametrize("at", [MINUTE + SETTLE_MS, "1970-01-01T00:01:15Z", "now-1m"])
def test_at_makes_an_answer_repeatable(session: Session, at: object) -> None:
    matrix = session.query("fetch('temperature').sum(by=[]).range('1m')", at=at)
    assert matrix.tolist(0) == [50.0]
    assert matrix == session.fetch("temperature").sum(by=[]).range("1m").collect(at)


def test_mistakes_have_a_place(session: Session) -> None:
    with pytest.raises(QueryError, match="temperature") as wrong:
        session.query("fetch('temprature')")
    assert "^" in str(wrong.value)
    with pytest.raises(QueryError, match="temperature") as wrong:
        session.parse("fetch('temprature')").collect()
    assert "^" in str(wrong.value)
    with pytest.raises(QueryError, match="not a time"):
        session.query("fetch('temperature')", at="tomorrow")


def test_finding(session: Session) -> None:
    assert session.names("temp") == ["temperature"]
    assert session.labels() == ["rack", "x"]
    assert session.label_values("rack") == ["r1", "r2"]
    assert list(session) == session._ipython_key_completions_() == ["odd", "temperature"]
    found = session.find("temperature")
    assert [one.labels["rack"] for one in found] == ["r1", "r2"]
    assert repr(found).splitlines() == [
        'temperature{rack="r1"}  double unknown',
        'temperature{rack="r2"}  double unknown',
        "2 series",
    ]
    assert found.to_pandas()["rack"].tolist() == ["r1", "r2"]
    cut = session.find("temperature", limit=1)
    assert (len(cut), cut.more, repr(cut).splitlines()[-1]) == (1, True, "1 series or more")
    assert isinstance(found[:1], SeriesList)
    assert session.names("temp", engine="memory") == ["temperature"]
    with pytest.raises(QueryError, match="has no history"):
        session.find("temperature", engine="history")


def test_html_is_escaped(session: Session) -> None:
    pages = [session.find('{x!=""}')._repr_html_(), session.query("fetch('{x!=\"\"}').range('2m')")._repr_html_()]
    for page in pages:
        assert "<b>" not in page
        assert "\x1b" not in page
        assert "&lt;b&gt;name" in page
    assert "<td" in pages[1]
    assert ">1<" in pages[1]
    assert ">NA<" in pages[1]


def test_html_is_bounded() -> None:
    store = PlainStore()
    for i in range(100):
        store.add("v", {"i": str(i)}, [(MINUTE, i)])
    session = Session(store, "nowhere", ManualClock(60 * MINUTE + SETTLE_MS))
    page = session.query("fetch('v').range('60m')")._repr_html_()
    assert page.count("<tr>") == 41
    assert "and 60 more series" in page
    assert session.query("fetch('v').range('1m')")._repr_html_().count("<tr>") == 0


def test_connect_names_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(NotRunningError, match="artimon up"):
        artimon.connect(data=tmp_path)
    with pytest.raises(SelectError, match="host:port"):
        artimon.connect("127.0.0.1:port:x")
    with artimon.connect("127.0.0.1:1") as session:
        assert repr(session) == "<artimon session: ZooKeeper 127.0.0.1:1>"


def test_a_store_that_is_not_there_is_named() -> None:
    with Session(VarstoreClient("127.0.0.1:1", deadline_s=0.3), "nowhere") as session:
        with pytest.raises(QueryError, match=r"127\.0\.0\.1:1 does not answer"):
            session.query("fetch('x')")
        assert session._ipython_key_completions_() == []


def test_import_does_no_work() -> None:
    code = "import sys, artimon; print(sorted({'query_dsl', 'kazoo', 'numpy', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    modules = "sys, artimon.session, query_dsl.results.plot"
    code = f"import {modules}; print(sorted({{'pandas', 'matplotlib'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
