"""docs/howto/backup.md with a real table: backup, more data, loss of all that is newer, restore. Kafka gives back what
came after the backup, and nothing is stored twice."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from artimon.runtime.file_access import delete_file, list_files, read_file, write_file
from pipeline.spark.spark_settings import SparkConfig
from tests.spark.driving import raw_query, reached
from tests.spark.helpers import Sender, table_rows
from tests.waiting import eventually

DEADLINE_S = 400.0
pytestmark = [pytest.mark.stack, pytest.mark.timeout(1500)]


def read_tables(hdfs: str) -> dict[str, bytes]:
    """Return the files of the three tables by URI: the copy that a backup makes."""
    root = f"{hdfs}/artimon"
    return {f"{root}/{path}": read_file(f"{root}/{path}") for path, _, _ in list_files(root)}


@pytest.mark.slow
def test_a_restored_table_reads_again_what_came_after_the_backup(
    config: SparkConfig, session: SparkSession, client: KazooClient
) -> None:
    sender = Sender(config.kafka, config.samples_topic)
    for n in range(10):
        sender.numbers(f"s{n % 3}/h/0", 20, n)
    with raw_query(config, session) as query:
        eventually(reached(query, 10), "the first batches are stored", DEADLINE_S)
    saved, rows_then = read_tables(config.hdfs), table_rows(config)
    for n in range(10, 25):
        sender.numbers(f"s{n % 4}/h/0", 20, n, copies=2)  # s3 is a source that the backup does not know
    with raw_query(config, session) as query:
        eventually(reached(query, 25), "the others are stored", DEADLINE_S)
    assert table_rows(config) == sender.ledger
    for uri in read_tables(config.hdfs):
        delete_file(uri)
    for uri, data in saved.items():
        write_file(uri, data)
    assert table_rows(config) == rows_then
    with raw_query(config, session) as query:
        eventually(reached(query, 25), "Kafka gave back what the backup lacked", DEADLINE_S)
        assert query.figures()["dead_letters"] == 0
    assert table_rows(config) == sender.ledger
    sender.close()
