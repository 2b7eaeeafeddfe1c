"""The settings of Kafka's security, and brokers that ask for them."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from artimon.runtime import topic_check
from artimon.runtime.kafka_access import client_options, java_options, open_client
from artimon.runtime.settings import KafkaSecurity, SettingsError, kafka_security, read_kafka_security
from artimon.runtime.topic_check import TopicsUnknownError, check_topics
from artimon.stack.stack import Stack
from artimon.stack.topics import TOPICS, make_topics
from pipeline.collector.kafka_writer import KafkaMessage, KafkaWriteError, KafkaWriter
from pipeline.spark.spark_settings import SparkConfig
from tests.kafka.secure import PASSWORD, USER, broker_options, client_environment
from tests.spark.carried import Carried
from tests.spark.conftest import connector, session
from tests.spark.helpers import config_for
from varstore.cluster.log_ends import log_span

__all__ = ["connector", "session"]
BASE_PORT = 27_500


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text("p\n")
    file.chmod(0o600)
    return file


def sasl(file: Path, **more: str) -> dict[str, str]:
    return {
        "ARTIMON_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "ARTIMON_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "ARTIMON_KAFKA_SASL_USERNAME": "u",
        "ARTIMON_KAFKA_SASL_PASSWORD_FILE": str(file),
        **more,
    }


def test_nothing_is_said_without_settings() -> None:
    access = read_kafka_security({})
    assert (client_options(access), java_options(access)) == ({}, {})


def test_a_password_comes_from_its_file_and_is_not_printed(secret: Path) -> None:
    access = read_kafka_security(sasl(secret))
    assert access.password == "p"
    assert "'p'" not in repr(access)
    assert client_options(access) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "u",
        "sasl_plain_password": "p",
    }
    jaas = java_options(replace(access, password=PASSWORD))["sasl.jaas.config"]
    assert jaas == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="se\\"cr\\\\et";'
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"ARTIMON_KAFKA_SECURITY_PROTOCOL": "TLS"},
            "ARTIMON_KAFKA_SECURITY_PROTOCOL is 'TLS': write one of PLAINTEXT",
        ),
        ({"ARTIMON_KAFKA_SASL_MECHANISM": "MD5"}, "ARTIMON_KAFKA_SASL_MECHANISM is 'MD5'"),
        ({"ARTIMON_KAFKA_SECURITY_PROTOCOL": "SSL"}, "ARTIMON_KAFKA_SASL_MECHANISM is set"),
        ({"ARTIMON_KAFKA_SASL_USERNAME": ""}, "needs a user name"),
        ({"ARTIMON_KAFKA_SASL_PASSWORD_FILE": ""}, "name a file that holds the secret"),
        ({"ARTIMON_KAFKA_SASL_PASSWORD_FILE": "/nowhere"}, "No such file"),
        ({"ARTIMON_KAFKA_TLS_CA": "/nowhere"}, "ARTIMON_KAFKA_TLS_CA: /nowhere cannot be read"),
        ({"ARTIMON_KAFKA_TLS_KEY": "/nowhere"}, "set both or none"),
    ],
)
def test_what_cannot_be_meant_is_refused(secret: Path, change: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words.replace("[", r"\[")):
        read_kafka_security(sasl(secret, **change))


def test_a_password_that_others_may_read_is_refused(secret: Path) -> None:
    secret.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 640"):
        read_kafka_security(sasl(secret))


def test_a_token_is_read_at_each_login(secret: Path) -> None:
    access = KafkaSecurity("SASL_SSL", "OAUTHBEARER", token_file=str(secret))
    provider = client_options(access)["sasl_oauth_token_provider"]
    assert provider.token() == "p"
    secret.write_text("q")
    assert provider.token() == "q"
    assert java_options(access)["sasl.oauthbearer.token.endpoint.url"] == secret.as_uri()


def test_kerberos_names_the_service_and_the_keytab() -> None:
    access = KafkaSecurity("SASL_SSL", "GSSAPI", username="spark@X", service="k", keytab="/k.keytab")
    assert client_options(access)["sasl_kerberos_service_name"] == "k"
    assert 'keyTab="/k.keytab" principal="spark@X"' in java_options(access)["sasl.jaas.config"]


@pytest.fixture(scope="module", params=["SCRAM-SHA-512", pytest.param("PLAIN", marks=pytest.mark.slow)])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, str]]:
    """A broker behind SASL_SSL, and the mechanism."""
    folder = tmp_path_factory.mktemp("guarded")
    options = broker_options(folder, request.param)
    with Stack(folder / "stack", ["kafka"], base_port=BASE_PORT, options=options) as stack:
        yield stack, request.param


@pytest.fixture
def allowed(guarded: tuple[Stack, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of the broker, while this process may use it."""
    stack, mechanism = guarded
    for name, value in client_environment(stack.data.parent, mechanism).items():
        monkeypatch.setenv(name, value)
    kafka_security.cache_clear()
    yield stack.kafka
    monkeypatch.undo()
    kafka_security.cache_clear()


@pytest.mark.stack
def test_who_has_no_password_is_told_so(guarded: tuple[Stack, str], monkeypatch: pytest.MonkeyPatch) -> None:
    stack, mechanism = guarded
    monkeypatch.setattr(topic_check, "BOOTSTRAP_TIMEOUT_MS", 5_000)  # each of the two attempts waits so long
    assert "ARTIMON_KAFKA_SECURITY_PROTOCOL" not in os.environ
    with pytest.raises(TopicsUnknownError, match="does not answer over PLAINTEXT"):
        check_topics(stack.kafka, TOPICS)
    wrong = read_kafka_security(client_environment(stack.data.parent, mechanism, "wrong"))
    with pytest.raises(TopicsUnknownError, match=f"SASL_SSL with {mechanism} as {USER}"):
        check_topics(stack.kafka, TOPICS, client_options(wrong))


@pytest.mark.stack
@pytest.mark.slow
def test_the_whole_way_with_a_password(
    allowed: str, zookeeper: str, hdfs: str, connector: list[str], session: SparkSession, tmp_path: Path
) -> None:
    """Collector, raw query and a shard's look at the log."""
    name = f"t{uuid.uuid4().hex[:10]}"
    topics = [replace(topic, name=topic.name.replace("artimon", name)) for topic in TOPICS]
    assert len(make_topics(allowed, topics)) == len(topics)
    config: SparkConfig = config_for(tmp_path, zookeeper, allowed, hdfs, name, connector)
    servers, chroot = config.zookeeper.split("/", 1)
    client = KazooClient(servers, timeout=60.0)
    client.start(timeout=20)
    client.ensure_path(f"/{chroot}")
    client.chroot = f"/{chroot}"
    way = Carried(config, session, client)
    with way.running(), way.spark():
        way.accept(40)
        way.settle()
    _, spans, _ = log_span(allowed, config.samples_topic)
    assert sum(end for _, end in spans.values()) >= 40
    client.stop()
    client.close()


@pytest.mark.stack
@pytest.mark.slow
def test_a_password_that_changed_is_a_reason_and_no_loss(guarded: tuple[Stack, str], allowed: str) -> None:
    assert isinstance(KafkaWriter(allowed).write([KafkaMessage("artimon.events", 0, b"x")])[0], tuple)
    kafka_security.cache_clear()
    os.environ["ARTIMON_KAFKA_SASL_PASSWORD_FILE"] = client_environment(guarded[0].data.parent, guarded[1], "bad")[
        "ARTIMON_KAFKA_SASL_PASSWORD_FILE"
    ]
    with pytest.raises(KafkaWriteError, match="does not answer"):
        KafkaWriter(allowed).describe_topic("artimon.events")


@pytest.mark.parametrize("kind", [KafkaConsumer, KafkaProducer, KafkaAdminClient])
def test_a_client_that_does_not_open_leaves_no_thread(kind: type[Any]) -> None:
    """A follower opens clients for as long as Kafka is away."""
    with pytest.raises(KafkaError):
        open_client(kind, bootstrap_servers="127.0.0.1:1", client_id="never-opened", bootstrap_timeout_ms=300)
    assert not [thread.name for thread in threading.enumerate() if "never-opened" in thread.name]
