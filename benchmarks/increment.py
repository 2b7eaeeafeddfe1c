"""What one increment costs the application, against prometheus_client in the same run.

`increment.handle`: a held handle's `add`, against a held child's `inc`. `increment.call`: the module function with a
name and a dict of labels, against `labels(route=…, code=…).inc()`, which like ours takes names and values;
`increment.call@positional` is the same call of ours against `labels("…", "…").inc()`, the shorter way of the peer.
All are timed in turn, and the best of the rounds counts for each.
"""

from __future__ import annotations

import sys
import timeit
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter

import bookkeeper
from benchmarks.common import Line, interleaved, line, show

ROUNDS = 15
LOOPS = 50_000


def timed(statement: str, names: dict[str, object], loops: int) -> Callable[[], float]:
    """A function that returns the ns of one execution of `statement`."""
    timer = timeit.Timer(statement, globals=names)
    return lambda: timer.timeit(loops) / loops * 1e9


def run(json: bool = True, rounds: int = ROUNDS, loops: int = LOOPS) -> Iterable[Line]:
    """Measures, prints each figure as a line of JSON (or in words), and returns them."""
    book = bookkeeper.Bookkeeper(online=False)
    before = bookkeeper.use(book)
    try:
        figures = measure(rounds, loops)
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


def measure(rounds: int, loops: int) -> list[Line]:
    """The figures, ours first; both sides have 100 series of one name."""
    counter = Counter("http_requests", "requests", ["route", "code"], registry=CollectorRegistry())
    for i in range(100):
        counter.labels(f"/{i}", "200")
        bookkeeper.add_to_integer_var("http.requests", {"route": f"/{i}", "code": "200"}, 1)
    names: dict[str, object] = {
        "handle": bookkeeper.integer("http.requests", {"route": "/7", "code": "200"}),
        "add": bookkeeper.add_to_integer_var,
        "counter": counter,
        "child": counter.labels("/7", "200"),
    }
    handle, call, child, labels, positional = interleaved(
        rounds,
        timed("handle.add(1)", names, loops),
        timed("add('http.requests', {'route': '/7', 'code': '200'}, 1)", names, loops),
        timed("child.inc()", names, loops),
        timed("counter.labels(route='/7', code='200').inc()", names, loops),
        timed("counter.labels('/7', '200').inc()", names, loops),
    )
    return [
        line("increment.handle", handle, "ns", "prometheus_client held child", child / handle),
        line("increment.call", call, "ns", "prometheus_client labels(name=value).inc()", labels / call),
        line("increment.call@positional", call, "ns", "prometheus_client labels(value).inc()", positional / call),
        line("peer.prometheus_client.handle", child, "ns"),
        line("peer.prometheus_client.call", labels, "ns"),
        line("peer.prometheus_client.call@positional", positional, "ns"),
    ]


def words(figure: Line) -> str:
    """A figure for people."""
    ratio = "" if figure["ratio"] is None else f"  {figure['ratio']:.2f} x as fast as {figure['peer']}"
    return f"{figure['name']:40} {figure['value']:8.1f} {figure['unit']}{ratio}"


if __name__ == "__main__":
    run()
