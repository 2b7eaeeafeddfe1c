"""Tables on a local folder, for tests that make thousands of appends: files get the times of the test's own clock, and
some cannot be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from artimon.model.clock import Clock
from artimon.runtime import file_access as files
from artimon.runtime.file_systems import ObjectFiles


class _Writer:
    def __init__(self, inner: Any, closed: Any) -> None:
        self._inner, self._closed = inner, closed
        self.write = inner.write

    def close(self) -> None:
        self._inner.close()
        self._closed()


class LocalClient(ObjectFiles):
    """Local folders by the clock of a test. The next `failing` files cannot be written."""

    def __init__(self, clock: Clock) -> None:
        super().__init__("file://")
        self._clock = clock
        self.failing = 0

    def write(self, path: str, data: bytes | memoryview) -> None:
        self._fail(path)
        super().write(path, data)
        self._stamp(path)

    def create(self, path: str) -> Any:
        self._fail(path)
        return _Writer(super().create(path), lambda: self._stamp(path))

    def _fail(self, path: str) -> None:
        if self.failing:
            self.failing -= 1
            raise OSError(f"{path}: refused by the test")

    def _stamp(self, path: str) -> None:
        now_ns = self._clock.now_ms() * 1_000_000
        os.utime(path, ns=(now_ns, now_ns))


@contextmanager
def local_files(clock: Clock) -> Iterator[LocalClient]:
    """Give the files of file:///folder the times of a clock."""
    client = LocalClient(clock)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_file_system", lambda _authority: client)
        yield client
