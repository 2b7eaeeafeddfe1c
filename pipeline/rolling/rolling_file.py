"""One rolling file: written under an unfinished name, closed, renamed once. Its final name makes it finished."""

from __future__ import annotations

from pipeline.rolling.store import Store


class RollingFile:
    """File that is being written. Not thread-safe.

    Every method but `abandon` raises StoreError, after which only that one makes sense: what the store holds then is
    known once `take_over` has settled it."""

    def __init__(self, store: Store, path: str) -> None:
        """Make the file, folders included; when this raises it may have been made all the same."""
        self._store, self.path = store, path
        self._writing = store.create(path)
        self.length = 0
        """Bytes written so far."""
        self.closed = False

    def write(self, data: bytes) -> None:
        self._writing.write(data)
        self.length += len(data)

    def sync(self) -> None:
        """What was written is durable when this returns."""
        self._writing.sync()

    def durable_length(self) -> int:
        """Make what was written durable, and ask the store how much that is."""
        self._writing.sync()
        return self._store.length(self.path)

    def close(self) -> None:
        """Durable when this returns. Idempotent."""
        if not self.closed:
            self._writing.close()
            self.closed = True

    def finish(self, to: str) -> None:
        """Close the file and give it its final name; refused if there is one of that name."""
        self.close()
        self._store.rename(self.path, to)

    def abandon(self) -> None:
        """Do nothing more with it; neither waits nor fails."""
        self._writing.abandon()


def take_over(store: Store, path: str) -> int | None:
    """Take an unfinished file away from a writer that is gone; its durable length, None while the store is still at it:
    ask again. Raises StoreError."""
    return store.length(path) if store.settle(path) else None
