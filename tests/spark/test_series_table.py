"""From the topics to a query result: samples by the raw query, announcements by the keeper, both by the history
engine."""

from __future__ import annotations

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.batch_codec import encode_series
from artimon.model.fingerprint import fingerprint
from artimon.model.values import Value, ValueType
from pipeline.spark.series_writer import SeriesWriter
from pipeline.spark.spark_settings import SparkConfig
from query_dsl import NothingSelected
from query_dsl.stores.history.engine import History
from tests.spark.driving import raw_query, reached, running
from tests.spark.helpers import Sender, now_ms
from tests.waiting import eventually

pytestmark = pytest.mark.stack


def test_samples_appear_once_their_series_is_announced(config: SparkConfig, session: SparkSession) -> None:
    sender = Sender(config.kafka, config.samples_topic)
    at = now_ms()
    values: list[Value | None] = [2**53 + 1, float("nan"), True, "naïve ☃", None]
    texts = [f'v{{n="{n}"}}' for n in range(len(values))]
    rows = [(fingerprint(text), at, at - 9, value) for text, value in zip(texts, values, strict=True)]
    sender.send("shop/host/0", rows)
    keeper = SeriesWriter(config.kafka, config.series_topic, config.hdfs, every_s=0.2)
    with raw_query(config, session) as query, running("series", keeper.run), History(config.hdfs) as history:
        eventually(reached(query, 1), "the batch")
        announce(config, SeriesBlock("shop/host/0", 0, at, (SeriesInfo("other{}", ValueType.INTEGER),)))
        eventually(lambda: keeper.figures()["series"] == 1, "the first announcement")
        with pytest.raises(NothingSelected):
            history.read("v", at - 1, at)
        infos = tuple(SeriesInfo(text, ValueType.INTEGER) for text in texts)
        announce(config, SeriesBlock("shop/host/0", 0, at + 1, infos))
        eventually(lambda: keeper.figures()["series"] == 6, "the second")
        answer = history.read("v", at - 1, at)
    found = [(one.series, one.source, one.time_ms, one.birth_ms, repr(one.value)) for one in answer.samples()]
    assert found == [(t, "shop/host/0", at, at - 9, repr(v)) for t, v in zip(texts, values, strict=True)]
    sender.close()


def announce(config: SparkConfig, block: SeriesBlock) -> None:
    producer = KafkaProducer(bootstrap_servers=config.kafka, acks="all")
    producer.send(config.series_topic, key=block.key, value=encode_series("agent", block).data).get(timeout=20)
    producer.close(timeout=5)
