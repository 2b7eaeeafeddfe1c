"""Timers and gauges of operations in progress: around a block (`with x:`, `async with x:`) or a function (`@x`)."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Optional, TypeVar, cast

from bookkeeper.variables.cell import GAUGE, Integer
from bookkeeper.variables.histogram import Histogram

Function = TypeVar("Function", bound=Callable[..., Any])
Self = TypeVar("Self", bound="ScopedAction")
Open = Optional[tuple["ScopedAction", float, Any]]  # noqa: UP045 - read at run time, also by Python 3.9

_OPEN: ContextVar[Open] = ContextVar("bookkeeper.variables.timers", default=None)
"""Stack of the open blocks of this thread or task: the innermost one, the result of its `begin`, and the rest."""


class ScopedAction:
    """Pair of actions at the begin and the end of a block or call, also if it raises. One object may be used by any
    number of threads and tasks at once, and nested.

    As a decorator it supports functions, coroutine functions (until the coroutine has ended), generators and async
    generators (from the first step to the end, including the time of the consumer). A function that returns an
    awaitable without being `async def` ends when it returns."""

    __slots__ = ()

    def begin(self) -> float:
        """Run the first action; its result is passed to `end`."""
        raise NotImplementedError

    def end(self, begun: float) -> None:
        """Run the second action; `begun` is the result of `begin`."""
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        _OPEN.set((self, self.begin(), _OPEN.get()))
        return self

    def __exit__(self, *_: object) -> None:
        found = _OPEN.get()
        if found is not None and found[0] is self:
            _OPEN.set(found[2])
            self.end(found[1])
        else:
            self._restore_outer(found)

    def _restore_outer(self, found: Open) -> None:
        """End a block that is not the innermost one, as those of generators may; no effect in another task."""
        inner = []
        while found is not None and found[0] is not self:
            inner.append(found)
            found = found[2]
        if found is None:
            return
        rest = found[2]
        for around, begun, _ in reversed(inner):
            rest = (around, begun, rest)
        _OPEN.set(rest)
        self.end(found[1])

    async def __aenter__(self: Self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def __call__(self, function: Function) -> Function:
        """Wrap each call of the function."""
        import inspect  # imported late: most programs never need it

        if inspect.iscoroutinefunction(function):
            return cast(Function, self._around_coroutine(function))
        if inspect.isasyncgenfunction(function):
            return cast(Function, self._around_async_generator(function))
        if inspect.isgeneratorfunction(function):
            return cast(Function, self._around_generator(function))

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            begun = self.begin()
            try:
                return function(*args, **kwargs)
            finally:
                self.end(begun)

        return cast(Function, call)

    def _around_coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            begun = self.begin()
            try:
                return await function(*args, **kwargs)
            finally:
                self.end(begun)

        return call

    def _around_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            begun = self.begin()
            try:
                return (yield from function(*args, **kwargs))
            finally:
                self.end(begun)

        return call

    def _around_async_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            begun, inner = self.begin(), function(*args, **kwargs)
            try:
                step = inner.__anext__()
                while True:  # as `yield from`, which asynchronous generators lack
                    try:
                        value = await step
                    except StopAsyncIteration:
                        return
                    try:
                        sent = yield value
                    except GeneratorExit:
                        await inner.aclose()
                        raise
                    except BaseException as error:
                        step = inner.athrow(error)
                    else:
                        step = inner.asend(sent)
            finally:
                self.end(begun)

        return call


class Timer(ScopedAction):
    """Observes durations in a histogram, in seconds, also of calls that raise."""

    __slots__ = ("histogram",)

    def __init__(self, histogram: Histogram) -> None:
        self.histogram = histogram

    def begin(self) -> float:
        return perf_counter()

    def end(self, begun: float) -> None:
        self.histogram.observe(perf_counter() - begun)

    def observe(self, seconds: float) -> None:
        """Observe a duration measured elsewhere."""
        self.histogram.observe(seconds)


class InFlight(ScopedAction):
    """Gauge of operations in progress."""

    __slots__ = ("cell",)

    def __init__(self, cell: Integer) -> None:
        self.cell = cell

    def begin(self) -> float:
        if self.cell.kind != GAUGE:  # a negative add makes the variable a gauge from its creation
            self.cell.add(-1)
            self.cell.add(2)
        else:
            self.cell.add(1)
        return 0.0

    def end(self, begun: float) -> None:  # noqa: ARG002 - of the base class
        if self.cell.value is not None:  # None if it ended meanwhile, or in a forked child
            self.cell.add(-1)
