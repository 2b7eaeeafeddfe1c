"""Queries over HTTP beside VictoriaMetrics and Prometheus that hold the same samples.

100,000 counters for an hour, 10,000 volumes, 1,000 counters for three days. Each query has a new text, so that no
cache helps (a query of one series asks for another host each time), and is timed from the request to the last byte of
JSON; client, API and shard are three processes. Answers are compared before a line is printed, series by series at
every step; rates, which peers extrapolate, within 5 %. A query that fails becomes a failed line; the others continue.

`@bytes`: the size of an answer. Peers repeat the time beside each value, so the answers of `join_volumes` have equal
values but more bytes on their side; `join_volumes@reduced` joins the same and has small answers on all sides.
`query.users`: p99 of 50 users, each with a query every 10 s, all texts different, while the shard is fed at the phases
of the product and the clock runs. `@1500000`: 1.5 million series, ours alone. `query.history`: a day from the raw
table (`benchmarks.query_history`). One call runs them all, one after another, and prints each line once.

python -m benchmarks.query [--series N] [--only NAME] [--no-peers]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from artimon.model.clock import SYSTEM_CLOCK
from benchmarks import query_history
from benchmarks.common import Parts, emit, fail, say
from benchmarks.limits import emit_echo
from benchmarks.loads import dashboards
from benchmarks.loads.queries import QueryWorld
from benchmarks.peers.series import Peer, PeerFailed
from benchmarks.serving.comparing import WrongAnswer, compare
from benchmarks.serving.racks import Got, Served, get_of_peer, query_path
from benchmarks.storage import find_peers

SERIES, MINUTES, MANY, MANY_MINUTES = 100_000, 60, 1_500_000, 10
HOUR_MS = 3_600_000
ROUNDS, PEER_ROUNDS, SINGLE_ROUNDS = 9, 5, 41
HOST = 42
"""Host of the last of several queries about single hosts."""
USERS, USERS_S, PAUSE_S = 50, 60.0, 10.0
BASE_PORT = 23800
RATES = 0.05


@dataclass(frozen=True, slots=True)
class Question:
    """One query of ours and its PromQL. `ours` has a placeholder {new} in its selectors, or both have one for a {host}
    number. `within`: tolerance of the comparison."""

    name: str
    ours: str
    theirs: str
    within: float = 1e-9

    @property
    def single(self) -> bool:
        """True if each repetition asks for another host."""
        return "{host" in self.theirs

    def texts(self, template: str, fresh: Iterator[str], rounds: int) -> list[str]:
        """Return `rounds` distinct texts of the query; the last is the same in every call."""
        hosts = [HOST + 37 * i for i in reversed(range(rounds))]
        return [template.format(new=next(fresh), host=host) for host in hosts]


REQUESTS = "fetch('bench.requests{{{new}}}')"
QUESTIONS = (
    Question(
        "single",
        "fetch('bench.requests{{host=\"host-{host:06}\"}}').range('60m')",
        'bench_requests{{host="host-{host:06}"}}',
    ),
    Question("sum_by_rack", f"{REQUESTS}.sum(by=['rack']).range('60m')", "sum by (rack) (bench_requests)"),
    Question(
        "rate_by_rack",
        f"{REQUESTS}.rate('5m').sum(by=['rack']).range('50m')",
        "sum by (rack) (rate(bench_requests[5m]))",
        RATES,
    ),
    Question(
        "topk",
        f"{REQUESTS}.map('max', '10m').topk(10, by=[], rank='each').range('50m')",
        "topk(10, max_over_time(bench_requests[10m]))",
    ),
    Question(
        "join_volumes",
        "(fetch('disk.used{{{new}}}') / fetch('disk.size{{{new}}}')).range('60m')",
        "disk_used / disk_size",
    ),
    Question(
        "join_volumes@reduced",
        "(fetch('disk.used{{{new}}}') / fetch('disk.size{{{new}}}')).max(by=['rack']).range('60m')",
        "max by (rack) (disk_used / disk_size)",
    ),
    Question(
        "quantile",
        f"{REQUESTS}.quantile(0.95, by=['rack']).range('60m')",
        "quantile by (rack) (0.95, bench_requests)",
    ),
    Question(
        "3days",
        "fetch('bench.long{{{new}}}').increase('1h').sum(by=['rack']).range('71h')",
        "sum by (rack) (increase(bench_long[1h]))",
        RATES,
    ),
)
MANY_RANGES = {"single": "10m", "sum_by_rack": "10m", "rate_by_rack": "5m", "topk": "1m", "quantile": "5m"}
"""Ranges of the queries over very many series."""
NAMES = tuple(question.name for question in QUESTIONS)


def news() -> Iterator[str]:
    """Yield distinct matchers that every series satisfies."""
    number = 0
    while True:
        number += 1
        yield f'none{number}=""'


def median_ms(got: Got) -> float:
    """Return the median over all queries."""
    return float(np.median(got.seconds)) * 1000


def ask_theirs(address: str, question: Question, grid: dict[str, int]) -> Got:
    """Query a peer on the grid of ours."""
    step = grid["step_ms"] // 1000
    start, end = grid["start_ms"] // 1000 + step, grid["end_ms"] // 1000
    rounds = SINGLE_ROUNDS if question.single else PEER_ROUNDS
    texts = question.texts(question.theirs, news(), rounds) if question.single else [question.theirs] * rounds
    times = f"&start={start}&end={end}&step={step}&nocache=1"
    return get_of_peer(address, [f"/api/v1/query_range?query={quote(text)}{times}" for text in texts])


def measure_questions(
    folder: Path, series: int, wanted: Sequence[Question], peers: bool, base_port: int, users_s: float, parts: Parts
) -> None:
    """Measure one line a query and peer; `users_s`: duration of `query.users`, 0 omits it."""
    world = QueryWorld(series, MINUTES, end_ms())
    made = partial(QueryWorld, series, MINUTES, world.end_ms)
    ours: dict[str, Got] = {}
    fresh = news()

    def ask(question: Question) -> None:
        say(f"ours: {question.name}")
        rounds = SINGLE_ROUNDS if question.single else ROUNDS
        ours[question.name] = served.get(question.texts(question.ours, fresh, rounds))

    with Served(world, folder / "ours", base_port, made) as served:
        for question in wanted:
            parts.run(f"query.{question.name}", partial(ask, question))
        if users_s:
            parts.run("query.users", lambda: measure_users(served, series, users_s))
    answered = [question for question in wanted if question.name in ours]
    theirs: dict[str, dict[str, Got]] = {question.name: {} for question in answered}
    wrong: dict[str, str] = {}
    for peer in find_peers(folder / "peers", "query") if peers and answered else []:
        parts.run(f"peer.{peer.name}.query", partial(ask_peer, peer, world, answered, ours, theirs, wrong))
    for question in answered:
        if question.name in wrong:
            parts.failed += 1
            fail(f"query.{question.name}", wrong[question.name])
        else:
            show(question, series, ours[question.name], theirs[question.name])


def ask_peer(
    peer: Peer,
    world: QueryWorld,
    wanted: Sequence[Question],
    ours: dict[str, Got],
    theirs: dict[str, dict[str, Got]],
    wrong: dict[str, str],
    family: str = "query",
) -> None:
    """Put the answers of one peer to all queries into `theirs`, and differences from ours into `wrong`. `family`: first
    part of the names of the lines."""
    say(f"{peer.name} {peer.version} stores the same")
    peer.store(world.peer_series())
    with peer.serve() as address:
        for question in wanted:
            say(f"{peer.name}: {question.name}")
            mine = ours[question.name].answer
            try:
                got = ask_theirs(address, question, mine["grid"])
                compare(question.name, peer.name, mine, got.answer, question.within)
            except WrongAnswer as error:
                wrong[question.name] = str(error)
            except (PeerFailed, OSError, RuntimeError) as error:
                fail(f"peer.{peer.name}.{family}.{question.name}", str(error))
            else:
                theirs[question.name][peer.name] = got


def show(question: Question, series: int, ours: Got, theirs: dict[str, Got]) -> None:
    """Print the lines of a query; `peer` is the fastest peer."""
    theirs_text = question.theirs.format(host=HOST) if question.single else question.theirs
    unit = f"ms ({theirs_text} in PromQL; {series:,} series, HTTP to the last byte of JSON, asked anew)"
    took = {name: median_ms(got) for name, got in theirs.items()}
    ms, best = median_ms(ours), min(took, key=lambda name: took[name], default=None)
    emit(f"query.{question.name}", ms, unit, best, took[best] / ms if best else None)
    emit_echo(f"query.{question.name}", ms, ours.size)
    points = sum(value is not None for one in ours.answer["series"] for value in one["values"])
    size = f"MB of one answer, {points:,} values, not compressed"
    emit(f"query.{variant(question.name, 'bytes')}", ours.size / 1e6, size)
    for name, got in theirs.items():
        emit(f"peer.{name}.query.{question.name}", took[name], unit, name, took[name] / ms)
        emit(f"peer.{name}.query.{variant(question.name, 'bytes')}", got.size / 1e6, size)


def variant(name: str, more: str) -> str:
    """Return the name of a variant of a line, or of a variant of a variant."""
    return f"{name}.{more}" if "@" in name else f"{name}@{more}"


def measure_users(served: Served, series: int, seconds: float) -> None:
    """Measure users with a dashboard each: one of its queries every PAUSE_S, while samples arrive."""
    say(f"{USERS} users for {seconds:.0f} s")
    texts = dashboards.texts(series)
    with served.living(seconds) as living:
        browsers = served.users(lambda _: (query_path(next(texts)),), USERS, seconds, PAUSE_S)
    refreshes = [one for browser in browsers for one in browser.refreshes]
    if refused := sum(one.refused for one in refreshes):
        raise RuntimeError(f"{refused} queries of users were refused")
    took, sizes = (np.concatenate(many) for many in zip(*((one.took, one.sizes) for one in refreshes), strict=True))
    took *= 1000
    unit = (
        f"ms ({USERS} users, a question every {PAUSE_S:.0f} s each, {series:,} series, {len(took)} questions, no text"
        f" twice, {living.samples:,} samples fed meanwhile, the clock running)"
    )
    emit("query.users", float(np.percentile(took, 99)), f"{unit}, p99")
    emit("query.users@p50", float(np.percentile(took, 50)), f"{unit}, p50")
    emit("query.users@max", float(took.max()), unit)
    emit_echo("query.users@p50", float(np.percentile(took, 50)), int(np.median(sizes)))


def measure_many(folder: Path, series: int, base_port: int) -> None:
    """Measure a few queries over very many series, ours alone."""
    world = QueryWorld(series, MANY_MINUTES, end_ms(), long=False)
    made = partial(QueryWorld, series, MANY_MINUTES, world.end_ms, long=False)
    fresh = news()
    with Served(world, folder / "many", base_port, made) as served:
        for question in QUESTIONS:
            if question.name not in MANY_RANGES:
                continue
            rounds = SINGLE_ROUNDS if question.single else 5
            texts = [
                text.replace("60m", MANY_RANGES[question.name]).replace("50m", MANY_RANGES[question.name])
                for text in question.texts(question.ours, fresh, rounds)
            ]
            say(f"{series:,} series: {texts[0]}")
            got = served.get(texts)
            if question.name == "sum_by_rack":
                check_sums(got.answer, world.metric("bench.requests").values.sum(axis=1).tolist())
            unit = f"ms ({series:,} series, the last {MANY_RANGES[question.name]}, HTTP)"
            emit(f"query.{question.name}@{series}", median_ms(got), unit)
            emit_echo(f"query.{question.name}@{series}", median_ms(got), got.size)


def check_sums(answer: dict[str, Any], expected: Sequence[int]) -> None:
    """Raise WrongAnswer unless the sum of all classes is `expected` at every step; whole numbers below 2^53."""
    found = [sum(map(int, values)) for values in zip(*(one["values"] for one in answer["series"]), strict=True)]
    if found != list(expected):
        raise WrongAnswer(f"all classes together are {found}, not {list(expected)}")


def end_ms() -> int:
    """Return the newest full hour: levels of an hour then have whole buckets, and peers refuse future samples."""
    return SYSTEM_CLOCK.now_ms() // HOUR_MS * HOUR_MS


def run(args: Sequence[str]) -> None:
    """Run the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.query", description=__doc__, formatter_class=form)
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--many", type=int, default=MANY, help="series of the large case, 0 omits it")
    parser.add_argument("--only", action="append", choices=[*NAMES, "users", "history"])
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--seconds", type=float, default=USERS_S, help="duration of query.users")
    parser.add_argument("--base-port", type=int, default=BASE_PORT)
    options = parser.parse_args(args)
    folder = Path(tempfile.mkdtemp(prefix="artimon-bench-"))
    only = set(options.only or (*NAMES, "users", "history"))
    wanted = [question for question in QUESTIONS if question.name in only]
    users_s, parts = options.seconds if "users" in only else 0.0, Parts()
    answered = partial(measure_questions, folder, options.series, wanted, not options.no_peers, options.base_port)
    try:
        if only - {"history"}:
            parts.run("query.questions", lambda: answered(users_s, parts))
        if "history" in only:
            parts.run("query.history", lambda: query_history.run([], options.base_port))
        if options.many and not options.only:
            parts.run("query.many", lambda: measure_many(folder, options.many, options.base_port))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    parts.finish()


if __name__ == "__main__":
    run(sys.argv[1:])
