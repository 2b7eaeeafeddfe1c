"""What every process of ours begins with, and what the terminal's commands share with them."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from types import FrameType

from artimon.runtime.settings import kafka_security, security, zookeeper_auth


def begin() -> threading.Event:
    """Set up logging and signals of a process; the event is set by SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    quiet()
    check_settings()
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop


def check_settings() -> None:
    """What a process shows to others is read before it begins: a wrong file ends it here. Raises SettingsError."""
    security()
    zookeeper_auth()
    kafka_security()


def quiet() -> None:
    """Clients of servers log every attempt; what matters of it our own messages say."""
    for noisy in ("kazoo", "kafka", "py4j", "bookkeeper.zookeeper"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
