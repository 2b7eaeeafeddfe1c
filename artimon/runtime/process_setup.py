"""Start of every process: logging, signals, settings, limits of files and the garbage collector. Commands of the
terminal share parts of it."""

from __future__ import annotations

import gc
import logging
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from artimon.runtime.arrow_setup import defer_pandas
from artimon.runtime.settings import kafka_security, security, zookeeper_auth


def install_signal_handlers() -> threading.Event:
    """Set up logging and signals of a process and check its settings; SIGTERM or SIGINT set the returned event."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    set_up_libraries()
    check_settings()
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop


def check_settings() -> None:
    """Read all credentials at start, so that an invalid file ends the process here. Raises SettingsError."""
    security()
    zookeeper_auth()
    kafka_security()


def set_up_libraries() -> None:
    """Silence client libraries, which log every attempt; our own messages report the relevant failures. Let Arrow, if
    it is imported, begin without pandas."""
    defer_pandas()
    for noisy in ("kazoo", "kafka", "py4j", "bookkeeper.zookeeper"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)


def raise_limit(spare: int) -> int:
    """Raise the soft limit of open files (often 1,024) to the hard limit. Return the connections that may be kept, with
    `spare` descriptors for everything else."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # the hard limit is unlimited, but the kernel has its own maximum
            pass
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(1, soft - spare)


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
