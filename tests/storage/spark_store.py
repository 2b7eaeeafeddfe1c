"""Appends of the Spark application's raw query to a store, in a process of its own, whose environment names the store:
python -m tests.storage.spark_store ZOOKEEPER KAFKA PLACE FOLDER. Exits with 0 if the table has what was sent, once."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from artimon.runtime.settings import load as load_settings
from artimon.stack import jars
from artimon.stack.java import find_java
from pipeline.spark.spark_session import make_session
from pipeline.spark.spark_settings import SparkConfig
from tests.spark.driving import raw_query, reached
from tests.spark.helpers import Sender, config_for, make_topics, table_rows
from tests.waiting import eventually


def main(words: Sequence[str]) -> int:
    zookeeper, kafka, place, folder = words
    settings = load_settings()
    connector = jars.ensure_jars(settings, find_java(settings), ["spark"]) / "spark"
    paths = [str(jar) for jar in sorted(connector.glob("*.jar"))]
    session = make_session(SparkConfig("", "", "", Path(folder) / "spark", None, paths, driver_memory="512m"))
    try:
        name = f"t{uuid.uuid4().hex[:10]}"
        make_topics(kafka, name)
        config = config_for(Path(folder), zookeeper, kafka, place, name, paths)
        sender = Sender(config.kafka, config.samples_topic, lane=0)
        old = [sender.numbers("a/h/0", 50, n) for n in range(4)]
        with raw_query(config, session) as query:
            eventually(reached(query, 4), "the first batches", 120)
            sender.send_bytes(old[0])  # a repeat
            sender.numbers("b/h/0", 50, 100)
            eventually(reached(query, 5), "the batch after the repeat", 120)
        return 0 if table_rows(config) == sender.ledger else 1
    finally:
        session.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
