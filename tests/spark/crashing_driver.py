"""A Spark application that kills itself with SIGKILL at a named point: python -m tests.spark.crashing_driver
CONFIG.json POINT NTH."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from pathlib import Path

from pipeline.spark.application import run_application
from pipeline.spark.spark_settings import SparkConfig
from tests.crashing import kill_at


def main(path: str, point: str, nth: int) -> None:
    logging.basicConfig(level=logging.INFO)
    data = json.loads(Path(path).read_text())
    config = SparkConfig(**{**data, "data": Path(data["data"]), "health": Path(data["health"])})
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    run_application(config, stop, probe=kill_at(point, nth))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
