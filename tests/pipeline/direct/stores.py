"""Store with injected faults, over a local folder."""

from __future__ import annotations

import threading
from pathlib import Path

from pipeline.rolling_files.file_store import FileWriter, LocalStore, StoreError


class FaultyStore(LocalStore):
    """`failing`: names of the calls (create, write, sync, close, rename) that fail now. `slow`: calls wait while it is
    clear. `done`: how often each call succeeded."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.failing: set[str] = set()
        self.go = threading.Event()
        self.go.set()
        self.slow: set[str] = set()
        self.done: list[str] = []

    def meet(self, call: str) -> None:
        if call in self.slow and not self.go.wait(60):
            raise StoreError(f"{call}: the test never let it go on")
        if call in self.failing:
            raise StoreError(f"{call}: refused by the test")
        self.done.append(call)

    def create(self, path: str) -> FileWriter:
        self.meet("create")
        return _Writing(self, super().create(path))

    def rename(self, path: str, to: str) -> None:
        self.meet("rename")
        super().rename(path, to)


class _Writing:
    def __init__(self, store: FaultyStore, inner: FileWriter) -> None:
        self._store, self._inner = store, inner

    def write(self, data: bytes) -> None:
        self._store.meet("write")
        self._inner.write(data)

    def sync(self) -> None:
        self._store.meet("sync")
        self._inner.sync()

    def close(self) -> None:
        self._store.meet("close")
        self._inner.close()

    def abandon(self) -> None:
        self._inner.abandon()
