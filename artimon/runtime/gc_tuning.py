"""Tuning of Python's cyclic garbage collector for a process with a large heap and frequent requests."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG, MIDDLE, OLD = 100_000, 20, 50
"""Thresholds of the generations: objects, then collections. An answer of 10,000 series makes 100,000 objects, none of
them cyclic garbage. With the default of 700 each such answer walks the whole heap, which takes longer than itself."""


def tune_gc() -> None:
    """Exempt all present objects from collection and collect new ones less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)


@contextmanager
def gc_tuned() -> Iterator[None]:
    """Tune the garbage collector for a block; at its end restore the thresholds and unfreeze. Objects that stay frozen
    are not freed at interpreter exit, and some libraries report them as leaks."""
    thresholds = gc.get_threshold()
    tune_gc()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
