"""How a defect is planted into the shipped classes for a while."""

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
    """`seeds`: how many were needed when it was last looked at; what is found within so many runs in the ordinary
    test run is `quick`."""

    name: str
    what: str
    patches: Patch

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The program has this defect meanwhile."""
        with ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            yield


def on(target: Any, name: str, value: Any) -> Any:
    return mock.patch.object(target, name, value)


def around(target: Any, name: str, wrapper: Callable[..., Any]) -> Any:
    """`wrapper(real, *arguments)` instead of a method or function."""
    real = getattr(target, name)

    @wraps(real)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        return wrapper(real, *arguments, **named)

    return mock.patch.object(target, name, wrapped)
