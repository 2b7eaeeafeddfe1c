"""Temporary defects of the shipped classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any
from unittest import mock

Patch = Callable[[], list[Any]]


@dataclass(frozen=True)
class Fault:
    """A defect. `name` and `what` describe it; `patches` plants it."""

    name: str
    what: str
    patches: Patch

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plant the defect within the context."""
        with ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            yield


def on(target: Any, name: str, value: Any) -> Any:
    return mock.patch.object(target, name, value)


def around(target: Any, name: str, wrapper: Callable[..., Any]) -> Any:
    """Call `wrapper(real, *arguments)` instead of a method or function."""
    real = getattr(target, name)

    @wraps(real)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        return wrapper(real, *arguments, **named)

    return mock.patch.object(target, name, wrapped)
