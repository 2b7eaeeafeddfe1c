"""Cost of counting to the application, beside prometheus_client and OpenTelemetry in the same run.

`increment.handle`: a held handle's `add`, against a held child's `inc`. `increment.call`: the module function with a
name and a dict of labels, against `labels(route=…, code=…).inc()`, which also takes names and values;
`increment.call@positional`: our same call against the peer's shorter form, `labels("…", "…").inc()`;
`increment.call@opentelemetry`: against its `add(1, {…})`. `@4threads`: four threads at once, ns an add over all.
`increment.observe`: a histogram's `observe`. All are timed in turn, and the best of the rounds counts for each.

`increment.snapshot`: the values of 1,500 variables as a poll sends them. `increment.bytes`: the memory of one variable
with two labels. `increment.web`: see benchmarks/counting/web.py. Before the timing benchmarks.counting.stress checks
that this interpreter loses no add.
"""

from __future__ import annotations

import sys
import threading
import timeit
import tracemalloc
from collections.abc import Callable, Iterable
from time import perf_counter

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, Counter, Histogram

import bookkeeper
from benchmarks.common import Line, interleaved, line, show
from benchmarks.counting import web
from benchmarks.counting.stress import stress
from bookkeeper.variables.snapshot import SnapshotReader

ROUNDS = 15
LOOPS = 50_000
THREADS = 4
VARIABLES = 1_500
LABELS = {"route": "/7", "code": "200"}


def timed(statement: str, names: dict[str, object], loops: int) -> Callable[[], float]:
    """Return a function that measures the ns of one execution of `statement`."""
    timer = timeit.Timer(statement, globals=names)
    return lambda: timer.timeit(loops) / loops * 1e9


def threaded(statement: str, names: dict[str, object], loops: int) -> Callable[[], float]:
    """Return the same function for four threads at once: wall-clock ns divided by all executions."""
    timers = [timeit.Timer(statement, globals=names) for _ in range(THREADS)]

    def run() -> float:
        threads = [threading.Thread(target=timer.timeit, args=(loops,)) for timer in timers]
        begun = perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return (perf_counter() - begun) / (loops * THREADS) * 1e9

    return run


def run(json: bool = True, rounds: int = ROUNDS, loops: int = LOOPS, requests: int = 3_000) -> Iterable[Line]:
    """Measure, print each figure as a line of JSON (or as text), and return them."""
    wrong = stress()
    if wrong:
        raise RuntimeError(f"this interpreter loses adds: {wrong}")
    book = bookkeeper.Bookkeeper(online=False)
    before = bookkeeper.use(book)
    try:
        figures = [*measure(rounds, loops), *snapshot(rounds), *memory(), *web.measure(rounds, requests)]
        if book.refusals():
            raise RuntimeError(f"increments were refused: {book.refusals()}")
    finally:
        bookkeeper.use(before)
    for figure in figures:
        if json:
            show(figure)
        else:
            sys.stdout.write(words(figure) + "\n")
    return figures


def statements() -> dict[str, object]:
    """Return the globals of the statements; all sides have 100 series of one name."""
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    counter = Counter("http_requests", "requests", ["route", "code"], registry=registry)
    theirs = Histogram("http_seconds", "seconds", ["route", "code"], registry=registry)
    otel = MeterProvider([reader]).get_meter("benchmark").create_counter("http.requests")
    for i in range(100):
        labels = {"route": f"/{i}", "code": "200"}
        counter.labels(**labels)
        theirs.labels(**labels)
        otel.add(1, labels)
        bookkeeper.add_to_integer_var("http.requests", labels, 1)
    return {
        "handle": bookkeeper.integer("http.requests", LABELS),
        "histogram": bookkeeper.histogram("http.seconds", LABELS),
        "add": bookkeeper.add_to_integer_var,
        "counter": counter,
        "child": counter.labels(**LABELS),
        "theirs": theirs.labels(**LABELS),
        "otel": otel,
        "labels": LABELS,
    }


def measure(rounds: int, loops: int) -> list[Line]:
    """Measure one thread and four, ours and the peers' in turn."""
    names = statements()
    ours = ("handle.add(1)", "add('http.requests', {'route': '/7', 'code': '200'}, 1)", "histogram.observe(0.07)")
    theirs = ("child.inc()", "counter.labels(route='/7', code='200').inc()", "theirs.observe(0.07)")
    others = ("counter.labels('/7', '200').inc()", "otel.add(1, {'route': '/7', 'code': '200'})")
    handle, call, observe, child, labels, observed, positional, otel = interleaved(
        rounds, *(timed(statement, names, loops) for statement in (*ours, *theirs, *others))
    )
    many = interleaved(
        max(rounds // 3, 1), *(threaded(text, names, loops) for text in (*ours[:2], *theirs[:2], others[1]))
    )
    named, held = "prometheus_client labels(name=value).inc()", "prometheus_client held child"
    return [
        line("increment.handle", handle, "ns", held, child / handle),
        line("increment.call", call, "ns", named, labels / call),
        line("increment.call@positional", call, "ns", "prometheus_client labels(value).inc()", positional / call),
        line("increment.call@opentelemetry", call, "ns", "OpenTelemetry counter.add", otel / call),
        line("increment.observe", observe, "ns", "prometheus_client held child observe()", observed / observe),
        line("increment.handle@4threads", many[0], "ns", held, many[2] / many[0]),
        line("increment.call@4threads", many[1], "ns", named, many[3] / many[1]),
        line("peer.prometheus_client.handle", child, "ns"),
        line("peer.prometheus_client.call", labels, "ns"),
        line("peer.prometheus_client.call@positional", positional, "ns"),
        line("peer.prometheus_client.observe", observed, "ns"),
        line("peer.prometheus_client.handle@4threads", many[2], "ns"),
        line("peer.prometheus_client.call@4threads", many[3], "ns"),
        line("peer.opentelemetry.call", otel, "ns"),
        line("peer.opentelemetry.call@4threads", many[4], "ns"),
    ]


def snapshot(rounds: int) -> list[Line]:
    """Measure packing 1,500 variables of all types for the wire when the poller knows the schema."""
    book = bookkeeper.Bookkeeper(online=False)
    for i in range(VARIABLES):
        labels = {"i": str(i)}
        if i % 10 == 0:
            book.set_string_var("text", labels, f"value {i % 7}")
        elif i % 3 == 0:
            book.set_double_var("double", labels, i / 7)
        else:
            book.add_to_integer_var("integer", labels, i)
    snapshots = SnapshotReader(book)
    (best,) = interleaved(rounds, timed("columns()", {"columns": snapshots.columns}, 20))
    return [line("increment.snapshot", best / 1e6, "ms")]


def memory(variables: int = 10_000) -> list[Line]:
    """Measure the bytes of a variable, without the texts of its label values, which belong to the application."""
    book = bookkeeper.Bookkeeper(online=False, max_per_name=variables + 1)
    counter = Counter("n", "n", ["route", "code"], registry=CollectorRegistry())
    routes = [f"/{i}" for i in range(variables)]

    def ours(route: str) -> None:
        book.add_to_integer_var("n", {"route": route, "code": "200"}, 1)

    def theirs(route: str) -> None:
        counter.labels(route=route, code="200").inc()

    sizes = [_grown(make, routes) for make in (ours, theirs)]
    return [
        line("increment.bytes", sizes[0], "bytes", "prometheus_client", sizes[1] / sizes[0]),
        line("peer.prometheus_client.bytes", sizes[1], "bytes"),
    ]


def _grown(make: Callable[[str], None], routes: list[str]) -> float:
    make("first")
    tracemalloc.start()
    try:
        for route in routes:
            make(route)
        return tracemalloc.get_traced_memory()[0] / len(routes)
    finally:
        tracemalloc.stop()


def words(figure: Line) -> str:
    """Format a figure as text."""
    ratio = "" if figure["ratio"] is None else f"  {figure['ratio']:.2f} x as fast as {figure['peer']}"
    return f"{figure['name']:40} {figure['value']:8.1f} {figure['unit']}{ratio}"


if __name__ == "__main__":
    run()
