"""Start of every process: logging, signals and settings. Commands of the terminal share parts of it."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from importlib.abc import MetaPathFinder
from types import FrameType
from typing import Any

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


class _PandasRefusal(MetaPathFinder):
    """Finder that lets the import of pandas fail."""

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not imported for Arrow", name=fullname)


def defer_pandas() -> None:
    """Let Arrow make its first array without pandas, if Arrow is imported and pandas is not: it imports pandas to
    recognize its types, 0.3 s and 50 MiB. Conversions to pandas import it later, and Arrow knows it from then on. For
    our own processes: a user's program may pass frames to Arrow."""
    arrow: Any = sys.modules.get("pyarrow")
    if arrow is None or "pandas" in sys.modules:
        return
    refusal = _PandasRefusal()
    sys.meta_path.insert(0, refusal)
    try:
        arrow.array([0])
    finally:
        sys.meta_path.remove(refusal)
