"""Timers and counts of what is under way: blocks and functions, threads and tasks, exceptions."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from typing import Any

import pytest

import bookkeeper
from bookkeeper import Bookkeeper, Timer
from bookkeeper.variables import timers as module
from bookkeeper.variables.cell import GAUGE
from tests.bookkeeper.books import replaced


class Hands:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def book() -> Iterator[Bookkeeper]:
    with replaced() as mine:
        yield mine


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(module, "perf_counter", hands)
    return hands


def seen(timer: Timer) -> tuple[int, float]:
    """Return the number of recorded times and their sum."""
    return timer.histogram.count(), timer.histogram.sum()


def test_a_block_and_a_real_clock(book: Bookkeeper) -> None:
    """Seconds, in a histogram of the default bounds."""
    with bookkeeper.timer("t", {"a": "x"}):
        threading.Event().wait(0.002)
    assert bookkeeper.get_integer_var("t.count", {"a": "x"}) == 1
    assert 0.001 < (bookkeeper.get_double_var("t.sum", {"a": "x"}) or 0.0) < 10.0


def test_exceptions_pass_and_are_timed(book: Bookkeeper, clock: Hands) -> None:
    """Blocks and functions alike."""
    timer = bookkeeper.timer("t")

    @timer
    def fails() -> None:
        clock.move(1.0)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), timer:
        fails()
    assert seen(timer) == (2, 2.0)


def test_inside_itself(book: Bookkeeper, clock: Hands) -> None:
    """A recursive function, and nested blocks of one timer."""
    timer = bookkeeper.timer("t")

    @timer
    def down(n: int) -> int:
        clock.move(1.0)
        with timer:
            return n and down(n - 1)

    assert down(3) == 0
    assert seen(timer) == (8, (4 + 3 + 2 + 1) + (3 + 2 + 1 + 0))


def test_decorated_functions_stay_what_they_are(book: Bookkeeper) -> None:
    """Name, documentation, signature, and the kind of function that frameworks look at."""
    timer = bookkeeper.timer("t")

    @timer
    async def coroutine(a: int, *, b: str = "") -> str:
        """Says it."""
        return b * a

    @timer
    def generator() -> Generator[int, None, None]:
        yield 1

    @timer
    async def asynchronous() -> AsyncGenerator[int, None]:
        yield 1

    assert inspect.iscoroutinefunction(coroutine)
    assert inspect.isgeneratorfunction(generator)
    assert inspect.isasyncgenfunction(asynchronous)
    assert (coroutine.__name__, coroutine.__doc__) == ("coroutine", "Says it.")
    assert list(inspect.signature(coroutine).parameters) == ["a", "b"]
    assert asyncio.run(coroutine(2, b="x")) == "xx"


def test_methods_classes_and_callables(book: Bookkeeper) -> None:
    """Anything that can be called."""
    timer = bookkeeper.timer("t")

    class Shop:
        @timer
        def method(self, n: int) -> int:
            return n

        @staticmethod
        @timer
        def static(n: int) -> int:
            return n

        @classmethod
        @timer
        def klass(cls, n: int) -> int:
            return n

    assert (Shop().method(1), Shop.static(2), Shop.klass(3)) == (1, 2, 3)
    assert timer(Shop)().method(4) == 4
    assert timer(max)(5, 2) == 5
    assert seen(timer)[0] == 6


def test_threads_share_a_timer(book: Bookkeeper) -> None:
    """Each thread's blocks are its own."""
    timer, barrier = bookkeeper.timer("t"), threading.Barrier(4)

    def work() -> None:
        for _ in range(50):
            with timer:
                barrier.wait(60)
                with timer:
                    barrier.wait(60)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen(timer)[0] == 400
    assert book.refusals() == {}


def test_tasks_that_take_turns(book: Bookkeeper, clock: Hands) -> None:
    """Two tasks in one thread, whose blocks overlap without nesting: each gets its own time."""
    timer = bookkeeper.timer("t", bounds=(1.0, 2.0, 4.0))

    async def one(begin: float, length: float) -> None:
        while clock.now < 100.0 + begin:
            await asyncio.sleep(0)
        async with timer:
            while clock.now < 100.0 + begin + length:
                await asyncio.sleep(0)

    async def ticks() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            clock.move(1.0)

    async def all_() -> None:
        await asyncio.gather(one(1.0, 4.0), one(2.0, 1.0), one(2.0, 2.0), ticks())

    asyncio.run(all_())
    found = {entry.labels.get("le"): entry.value for entry in book.collect() if entry.name == "t.bucket"}
    assert found == {"1.0": 1, "2.0": 2, "4.0": 3, "+Inf": 3}


def test_coroutines_until_they_end(book: Bookkeeper, clock: Hands) -> None:
    """Not until they are made; also if they are cancelled."""
    timer = bookkeeper.timer("t")

    @timer
    async def waits(event: asyncio.Event) -> str:
        await event.wait()
        return "done"

    async def use() -> str:
        event = asyncio.Event()
        never: Coroutine[Any, Any, str] = waits(event)
        clock.move(50.0)
        task, other = asyncio.ensure_future(never), asyncio.ensure_future(waits(asyncio.Event()))
        await asyncio.sleep(0)
        clock.move(2.0)
        other.cancel()
        event.set()
        await asyncio.gather(other, return_exceptions=True)
        return await task

    assert asyncio.run(use()) == "done"
    assert seen(timer) == (2, 4.0)


def test_generators_from_the_first_step_to_the_end(book: Bookkeeper, clock: Hands) -> None:
    """Values and exceptions pass through a timed generator; closing it early counts as its end."""
    timer = bookkeeper.timer("t")

    @timer
    def echo() -> Generator[str, str, str]:
        got = yield "begin"
        try:
            while got != "end":
                got = yield got.upper()
        except KeyError:
            got = "thrown"
        return got

    running = echo()
    clock.move(7.0)
    assert next(running) == "begin"
    clock.move(1.0)
    assert running.send("a") == "A"
    with pytest.raises(StopIteration) as ended:
        running.throw(KeyError)
    assert ended.value.value == "thrown"
    closed = echo()
    next(closed)
    clock.move(2.0)
    closed.close()
    assert seen(timer) == (2, 3.0)


def test_asynchronous_generators(book: Bookkeeper, clock: Hands) -> None:
    """The same, and the inner generator is closed with the outer one."""
    timer, closed = bookkeeper.timer("t"), []

    @timer
    async def echo() -> AsyncGenerator[str, str]:
        got = "begin"
        try:
            while got != "end":
                try:
                    got = yield got.upper()
                except KeyError:
                    got = "thrown"
        finally:
            closed.append(True)

    async def use() -> None:
        running = echo()
        assert await running.__anext__() == "BEGIN"
        clock.move(1.0)
        assert await running.asend("a") == "A"
        assert await running.athrow(KeyError) == "THROWN"
        with pytest.raises(StopAsyncIteration):
            await running.asend("end")
        other = echo()
        await other.__anext__()
        clock.move(2.0)
        await other.aclose()
        assert [item async for item in take(2)] == [0, 1]

    @timer
    async def take(n: int) -> AsyncGenerator[int, None]:
        for i in range(n):
            yield i

    asyncio.run(use())
    assert closed == [True, True]
    assert seen(timer) == (3, 3.0)


def test_blocks_of_generators_that_end_in_another_order(book: Bookkeeper, clock: Hands) -> None:
    """Each timer gets its own time; what is open stays open."""
    first, second = bookkeeper.timer("first"), bookkeeper.timer("second")

    def inside(timer: Timer) -> Iterator[None]:
        with timer:
            yield

    a, b = inside(first), inside(second)
    next(a)
    clock.move(1.0)
    next(b)
    clock.move(1.0)
    next(a, None)
    clock.move(4.0)
    next(b, None)
    assert (seen(first), seen(second)) == ((1, 2.0), (1, 5.0))


def test_an_end_in_another_context_is_left_out(book: Bookkeeper) -> None:
    """Nothing is known of its begin there: no time, no exception."""
    timer = bookkeeper.timer("t")
    timer.__enter__()
    thread = threading.Thread(target=timer.__exit__, args=(None, None, None))
    thread.start()
    thread.join(60)
    assert seen(timer)[0] == 0
    timer.__exit__(None, None, None)
    assert seen(timer)[0] == 1


@pytest.mark.parametrize("times", [1, 3])
def test_in_flight_is_a_gauge_from_the_beginning(book: Bookkeeper, times: int) -> None:
    """Up inside, down outside, also after an exception."""
    busy = bookkeeper.in_flight("busy", {"a": "x"})
    values: list[int | None] = []

    @busy
    def work(n: int) -> None:
        values.append(busy.cell.get())
        if n:
            work(n - 1)
        raise ValueError

    with pytest.raises(ValueError):
        work(times)
    assert values == list(range(1, times + 2))
    assert (busy.cell.get(), busy.cell.kind) == (0, GAUGE)
    assert {entry.kind for entry in book.collect()} == {"gauge"}


def test_in_flight_through_a_fork(book: Bookkeeper) -> None:
    """A child does not count down what its parent began."""
    busy = bookkeeper.in_flight("busy")
    with busy:
        book.forget_values()
    assert busy.cell.get() is None
    with busy:
        assert busy.cell.get() == 1
    assert busy.cell.get() == 0


def test_a_bad_name_never_stops_the_function(book: Bookkeeper) -> None:
    """Refused and counted, as everywhere."""
    decorate: Callable[[Callable[[], int]], Callable[[], int]] = bookkeeper.timer("a b")
    assert decorate(lambda: 3)() == 3
    assert bookkeeper.in_flight("a b")(lambda: 4)() == 4
    assert book.refusals()["name"] >= 2
