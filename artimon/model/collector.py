"""The cyclic garbage collector of a process that holds much and answers often."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG, MIDDLE, OLD = 100_000, 20, 50
"""Objects, then collections: an answer about 10,000 series makes 100,000 objects, none of them garbage in a cycle. With
the usual 700 every such answer walks through everything the process holds, which takes longer than the answer."""


def settle() -> None:
    """What there is by now stays, and is not looked at again; what comes is looked at less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)


@contextmanager
def settled() -> Iterator[None]:
    """Settle until the block ends, then restore what was before. Objects that stay frozen are not freed when the
    interpreter ends, and libraries report theirs as leaks."""
    thresholds = gc.get_threshold()
    settle()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
