"""Questions of the language over HTTP beside VictoriaMetrics and Prometheus that hold the same samples.

100,000 counters for an hour, 10,000 volumes, 1,000 counters for three days. Each question is asked as one that nobody
asked before (of one series: each time of another one), from the request to the last byte of JSON; client, API and shard
are three processes. Answers are compared before a line is printed: of rates, which peers extrapolate, within 5 %.
`query.users`: dashboards of 50 users, each with a question every 10 s, p99. `@1500000`: a million and a half series,
ours alone. `query.history`: a day out of the raw table (`benchmarks.query_history`). All of it in one call, one after
the other; each line once.

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
from benchmarks.common import emit
from benchmarks.loads.queries import QueryWorld
from benchmarks.peers.series import Peer
from benchmarks.serving.racks import Served, get_of_peer
from benchmarks.storage import find_peers, say

SERIES, MINUTES, MANY, MANY_MINUTES = 100_000, 60, 1_500_000, 10
HOUR_MS = 3_600_000
ROUNDS, PEER_ROUNDS, SINGLE_ROUNDS = 9, 5, 41
HOST = 42
"""The host that the last of several questions about single hosts asks for."""
USERS, USERS_S, PAUSE_S = 50, 60.0, 10.0
BASE_PORT = 23800
RATES = 0.05


class WrongAnswer(RuntimeError):
    """Ours is not what a peer says."""


@dataclass(frozen=True, slots=True)
class Question:
    """`ours` has a place {new} in its selectors, or, as `theirs` in PromQL, one for the number of a {host}; `within`:
    how far values may differ."""

    name: str
    ours: str
    theirs: str
    within: float = 1e-9

    @property
    def single(self) -> bool:
        """Whether each time another host is asked for."""
        return "{host" in self.theirs

    def texts(self, template: str, fresh: Iterator[str], rounds: int) -> list[str]:
        """The question so many times, each time anew; the last of them is always the same."""
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
"""Of very many series."""
NAMES = tuple(question.name for question in QUESTIONS)
_RACK, _HOST = '{{rack="r{rack:02}"}}', '{{host="host-{host:06}"}}'
DASHBOARD = (
    f"fetch('bench.requests{_RACK}').rate('5m').sum(by=['rack']).range('30m')",
    f"fetch('bench.requests{_HOST}').rate('5m').range('1h')",
    f"(fetch('disk.used{_RACK}') / fetch('disk.size{_RACK}')).topk(5, by=[]).range('30m')",
    "fetch('bench.requests').sum(by=['rack']).range('30m')",
)


def news() -> Iterator[str]:
    """Conditions that every series fits and that nobody asked before."""
    number = 0
    while True:
        number += 1
        yield f'none{number}=""'


def ask_ours(served: Served, texts: Sequence[str]) -> tuple[float, dict[str, Any]]:
    """Median ms, and the last answer."""
    took, answer = served.get(texts)
    return float(np.median(took)) * 1000, answer


def ask_theirs(address: str, question: Question, grid: dict[str, int]) -> tuple[float, dict[str, Any]]:
    """Median ms, and the last answer, on the grid of ours."""
    step = grid["step_ms"] // 1000
    start, end = grid["start_ms"] // 1000 + step, grid["end_ms"] // 1000
    rounds = SINGLE_ROUNDS if question.single else PEER_ROUNDS
    texts = question.texts(question.theirs, news(), rounds) if question.single else [question.theirs] * rounds
    times = f"&start={start}&end={end}&step={step}&nocache=1"
    took, answer = get_of_peer(address, [f"/api/v1/query_range?query={quote(text)}{times}" for text in texts])
    return float(np.median(took)) * 1000, answer


def check(question: Question, peer: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Raises WrongAnswer unless both name the same series and values at the newest times are equal."""
    mine = {_key(one["labels"]): one["values"][-1] for one in ours["series"] if one["values"][-1] is not None}
    last = ours["grid"]["end_ms"] / 1000
    rest = {
        _key(one["metric"]): float(one["values"][-1][1])
        for one in theirs["data"]["result"]
        if one["values"] and one["values"][-1][0] == last
    }
    if mine.keys() != rest.keys():
        raise WrongAnswer(f"{question.name}: {len(mine)} series, {peer} has {len(rest)}")
    a, b = (np.array([side[key] for key in mine], np.float64) for side in (mine, rest))
    if not np.allclose(a, b, rtol=question.within, atol=0.0):
        worst = float(np.max(np.abs(a - b) / np.abs(b)))
        raise WrongAnswer(f"{question.name}: values differ from those of {peer} by up to {worst:.2%}")


def _key(labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in labels.items() if name != "__name__"))


def measure_questions(
    folder: Path, series: int, wanted: Sequence[Question], peers: bool, base_port: int, users: bool
) -> None:
    """One line a question and peer."""
    world = QueryWorld(series, MINUTES, end_ms())
    made = partial(QueryWorld, series, MINUTES, world.end_ms)
    ours: dict[str, tuple[float, dict[str, Any]]] = {}
    fresh = news()
    with Served(world, folder / "ours", base_port, made) as served:
        for question in wanted:
            say(f"ours: {question.name}")
            rounds = SINGLE_ROUNDS if question.single else ROUNDS
            ours[question.name] = ask_ours(served, question.texts(question.ours, fresh, rounds))
        if users:
            measure_users(served, series)
    theirs: dict[str, dict[str, float]] = {question.name: {} for question in wanted}
    for peer in find_peers(folder / "peers") if peers and wanted else []:
        for name, ms in ask_peer(peer, world, wanted, ours).items():
            theirs[name][peer.name] = ms
    for question in wanted:
        show(question, series, ours[question.name][0], theirs[question.name])


def ask_peer(
    peer: Peer, world: QueryWorld, wanted: Sequence[Question], ours: dict[str, tuple[float, dict[str, Any]]]
) -> dict[str, float]:
    """Median ms of each question, answers compared."""
    say(f"{peer.name} {peer.version} stores the same")
    peer.store(world.peer_series())
    found = {}
    with peer.serve() as address:
        for question in wanted:
            say(f"{peer.name}: {question.name}")
            answer = ours[question.name][1]
            found[question.name], theirs = ask_theirs(address, question, answer["grid"])
            check(question, peer.name, answer, theirs)
    return found


def show(question: Question, series: int, ms: float, theirs: dict[str, float]) -> None:
    """The lines of a question; `peer` is the quicker one."""
    theirs_text = question.theirs.format(host=HOST) if question.single else question.theirs
    unit = f"ms ({theirs_text} in PromQL; {series:,} series, HTTP to the last byte of JSON, asked anew)"
    best = min(theirs, key=lambda name: theirs[name], default=None)
    emit(f"query.{question.name}", ms, unit, best, theirs[best] / ms if best else None)
    for name, their_ms in theirs.items():
        emit(f"peer.{name}.query.{question.name}", their_ms, unit, name, their_ms / ms)


def measure_users(served: Served, series: int) -> None:
    """Users with a dashboard each: every PAUSE_S one of its questions."""
    say(f"{USERS} users")
    texts = [
        text.format(rack=turn % 100, host=turn * 37 % series) for turn in range(USERS) for text in DASHBOARD
    ]  # fmt: skip
    took = np.array(served.users(texts, USERS, USERS_S, PAUSE_S)) * 1000
    unit = f"ms ({USERS} users, a question every {PAUSE_S:.0f} s each, {series:,} series, {len(took)} questions)"
    emit("query.users", float(np.percentile(took, 99)), f"{unit}, p99")
    emit("query.users@p50", float(np.percentile(took, 50)), f"{unit}, p50")
    emit("query.users@max", float(took.max()), unit)


def measure_many(folder: Path, series: int, base_port: int) -> None:
    """A few questions over very many series, ours alone."""
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
            ms, answer = ask_ours(served, texts)
            if question.name == "sum_by_rack":
                check_sum(answer, int(world.metric("bench.requests").values[-1].sum()))
            unit = f"ms ({series:,} series, the last {MANY_RANGES[question.name]}, HTTP)"
            emit(f"query.{question.name}@{series}", ms, unit)


def check_sum(answer: dict[str, Any], expected: int) -> None:
    """Raises WrongAnswer unless the newest values of all classes are that much together; whole numbers below 2^53."""
    found = sum(int(one["values"][-1]) for one in answer["series"])
    if found != expected:
        raise WrongAnswer(f"the newest values are {found} together, not {expected}")


def end_ms() -> int:
    """The newest full hour: levels of an hour have whole buckets, peers take nothing of the future."""
    return SYSTEM_CLOCK.now_ms() // HOUR_MS * HOUR_MS


def run(args: Sequence[str]) -> None:
    """Command line: see the module."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.query", description=__doc__, formatter_class=form)
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--many", type=int, default=MANY, help="0 leaves it out")
    parser.add_argument("--only", action="append", choices=[*NAMES, "users", "history"])
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--base-port", type=int, default=BASE_PORT)
    options = parser.parse_args(args)
    folder = Path(tempfile.mkdtemp(prefix="artimon-bench-"))
    only = set(options.only or (*NAMES, "users", "history"))
    wanted = [question for question in QUESTIONS if question.name in only]
    try:
        if only - {"history"}:
            measure_questions(
                folder, options.series, wanted, not options.no_peers, options.base_port, "users" in only
            )  # fmt: skip
        if "history" in only:
            query_history.run([], options.base_port)
        if options.many and not options.only:
            measure_many(folder, options.many, options.base_port)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    run(sys.argv[1:])
