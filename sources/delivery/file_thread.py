"""Thread that reads files, whose file system may hang."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")
READ_TIMEOUT_S = 30.0
"""Timeout of one read in seconds. Until the hanging call returns, no other work is started."""


class FileSystemHangsError(RuntimeError):
    """The thread waits for the file system."""


class FileThread:
    """Runs work on files outside the event loop, one call at a time. Called by the event loop only."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._busy: asyncio.Future[Any] | None = None

    async def __call__(self, work: Callable[[], Result], /) -> Result:
        """Run `work` and return its result. Raises FileSystemHangsError while the file system does not answer."""
        if self._busy is not None and not self._busy.done():
            raise FileSystemHangsError(f"{self._folder}: the file system does not answer")
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        self._busy = future
        try:
            return await asyncio.wait_for(asyncio.shield(future), READ_TIMEOUT_S)
        except TimeoutError:
            raise FileSystemHangsError(
                f"{self._folder}: the file system did not answer within {READ_TIMEOUT_S:g} s"
            ) from None

    def close(self) -> None:
        """Stop the thread; queued work is cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)
