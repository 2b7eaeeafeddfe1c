"""One rolling file: written under an unfinished name, closed, renamed once. Its final name makes it finished."""

from __future__ import annotations

from pipeline.rolling_files.file_store import FileStore


class RollingFile:
    """File that is being written. Not thread-safe.

    Every method but `abandon` raises StoreError, after which only `abandon` may be called: the content of the store is
    then unknown until `recover_length` has settled it."""

    def __init__(self, store: FileStore, path: str) -> None:
        """Create the file and its folders; if this raises, the file may exist nevertheless."""
        self._store, self.path = store, path
        self._writer = store.create(path)
        self.length = 0
        """Bytes written so far."""
        self.closed = False

    def write(self, data: bytes) -> None:
        self._writer.write(data)
        self.length += len(data)

    def sync(self) -> None:
        """Make all written bytes durable."""
        self._writer.sync()

    def durable_length(self) -> int:
        """Make all written bytes durable and return the durable length that the store reports."""
        self._writer.sync()
        return self._store.length(self.path)

    def close(self) -> None:
        """Close the file; durable when this returns. Idempotent."""
        if not self.closed:
            self._writer.close()
            self.closed = True

    def close_as(self, to: str) -> None:
        """Close the file and rename it to its final name; refused if that name exists."""
        self.close()
        self._store.rename(self.path, to)

    def abandon(self) -> None:
        """Give the file up; neither waits nor fails."""
        self._writer.abandon()


def recover_length(store: FileStore, path: str) -> int | None:
    """Take an unfinished file over from a dead writer. Returns its durable length; None while the store is not ready:
    try again. Raises StoreError."""
    return store.length(path) if store.recover_lease(path) else None
