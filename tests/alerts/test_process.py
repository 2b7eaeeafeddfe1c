"""The whole process against a real shard, ZooKeeper, Kafka and mail server: fires, is shown, resolves, restarts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import alerts
from alerts.engine_process import AlertsConfig, parse_external_labels, run_alerts
from alerts.receivers.mail import MailSettings, load_settings
from alerts.rules.rule_folder import seed_rules
from alerts.state.publication import read_alerts
from alerts.state.rule import AlertsError
from artimon.model.batch import BatchId, SeriesBlock, SeriesInfo
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.fingerprint import fingerprint
from artimon.model.values import Kind, ValueType
from artimon.runtime.health import Health, read_health
from artimon.runtime.zookeeper_client import zookeeper_client
from artimon.stack.artimon_parts import AlertsPart
from tests.alerts.api_client import ApiClient
from tests.alerts.mailboxes import Mailbox, free_port
from tests.cli.test_misuse import artimon
from tests.varstore.test_server import Cluster, cluster, source_of  # noqa: F401
from tests.varstore.worlds import TestBatch
from tests.waiting import eventually

MINUTE = 60_000
UP = 'artimon.endpoint.up{context="shop",host="h1",instance="0"}'


class Shifted:
    """The system's clock, which a test can set forward."""

    def __init__(self) -> None:
        self.shift_ms = 0

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + self.shift_ms

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        return SYSTEM_CLOCK.wait(stop, min(seconds, 0.05))


@contextmanager
def running(config: AlertsConfig, clock: Clock) -> Iterator[None]:
    """The process in a thread."""
    stop = threading.Event()
    thread = threading.Thread(target=run_alerts, args=(config, stop), kwargs={"clock": clock}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()


def mail_by(address: str) -> dict[str, MailSettings]:
    """Settings of receivers: mail by this server."""
    return {"mail": load_settings(address, "artimon@localhost")}


def health_of(config: AlertsConfig) -> Health:
    assert config.health is not None
    found = read_health(config.health)
    assert found is not None
    return found


@pytest.mark.stack
def test_an_endpoint_goes_down_and_comes_back(
    cluster: Cluster,  # noqa: F811
    mails: Mailbox,
    tmp_path: Path,
) -> None:
    """With the shipped rule: pending, firing, one mail; a restart tells nothing; up again: one more mail."""
    seed_rules(tmp_path / "rules")
    clock = Shifted()
    base = clock.now_ms() // MINUTE * MINUTE
    clock.shift_ms = base + 20_000 - SYSTEM_CLOCK.now_ms()
    config = AlertsConfig(
        cluster.zookeeper, tmp_path / "rules", tmp_path / "data", mail_by(mails.address), page="http://page",
        health=tmp_path / "health" / "alerts.json",
    )  # fmt: skip
    log: list[TestBatch] = []

    def minute(value: int) -> None:
        """A minute passes in which the endpoint is polled once."""
        n = len(log)
        time_ms = base + n * MINUTE + 30_000
        batch_id = BatchId("agent", 1, 0, n)
        log.append(TestBatch(batch_id, source_of("0"), time_ms, [(fingerprint(UP), time_ms, base, value)]))
        cluster.feed("0", log, n, n + 1)
        clock.shift_ms += MINUTE
        end = base + (n + 1) * MINUTE
        eventually(lambda: health_of(config).figures.get("last_ms") == end)

    for id in ("0", "1"):
        cluster.place(id)
        cluster.wait_whole(id)
    infos = (SeriesInfo(UP, ValueType.INTEGER, Kind.GAUGE),)
    cluster.announce(SeriesBlock(source_of("0"), 0, 1, infos))
    client = zookeeper_client(cluster.zookeeper)
    client.start(timeout=60)
    with running(config, clock):
        eventually(lambda: config.health is not None and config.health.exists())
        minute(1)
        minute(0)
        eventually(lambda: health_of(config).figures["alerts"] == {"pending": 1, "firing": 0})
        minute(0)
        eventually(lambda: len(mails.raw) == 1)
        eventually(
            lambda: read_alerts(client)["alerts"] != [] and read_alerts(client)["alerts"][0]["state"] == "firing"
        )
        assert mails.subjects == ["[FIRING] endpoint-down: shop 0 on h1 is down"]
        with pytest.raises(AlertsError, match="another engine"):
            run_alerts(config, threading.Event())
    eventually(lambda: read_alerts(client)["engines"] == [])
    with running(config, clock):
        minute(0)
        minute(1)
        eventually(lambda: len(mails.raw) == 2)
        assert mails.subjects[1] == "[RESOLVED] endpoint-down: shop 0 on h1 is down"
        eventually(lambda: health_of(config).figures["mail"]["sent"] == 1)
        assert health_of(config).figures["problems"] == []
    client.stop()
    client.close()


PROMPT_RULES = """
rules:
  - {name: down, expr: fetch('artimon.endpoint.up'), threshold: "< 1", missing: keep, interval: 59s}
  - {name: low, promql: '{"artimon.endpoint.up"} < 1', interval: 59s}
"""


@pytest.mark.stack
def test_rules_below_a_minute_follow_the_samples(
    cluster: Cluster,  # noqa: F811
    mails: Mailbox,
    tmp_path: Path,
) -> None:
    """Each change of the value is told before the interval has passed; the mail of the first firing has a chart."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "rules.yaml").write_text(PROMPT_RULES)
    config = AlertsConfig(
        cluster.zookeeper, tmp_path / "rules", tmp_path / "data", mail_by(mails.address), page="http://page",
        health=tmp_path / "health" / "alerts.json",
    )  # fmt: skip
    log: list[TestBatch] = []
    base = SYSTEM_CLOCK.now_ms()

    def poll(value: int) -> None:
        now_ms = SYSTEM_CLOCK.now_ms()
        samples = [(fingerprint(UP), now_ms, base, value)]
        log.append(TestBatch(BatchId("agent", 1, 0, len(log)), source_of("0"), now_ms, samples))
        cluster.feed("0", log, len(log) - 1, len(log))

    for id in ("0", "1"):
        cluster.place(id)
        cluster.wait_whole(id)
    cluster.announce(SeriesBlock(source_of("0"), 0, 1, (SeriesInfo(UP, ValueType.INTEGER, Kind.GAUGE),)))
    poll(1)
    with running(config, SYSTEM_CLOCK):
        eventually(lambda: config.health is not None and config.health.exists())
        eventually(lambda: health_of(config).figures["rules"].get("inactive") == 2)
        for value, count in ((0, 2), (1, 4)):
            before = SYSTEM_CLOCK.monotonic()
            poll(value)
            eventually(lambda count=count: len(mails.raw) == count, seconds=59)  # type: ignore[misc]
            assert SYSTEM_CLOCK.monotonic() - before < 50
        assert health_of(config).figures["problems"] == []
    assert sorted(one.split(":")[0] for one in mails.subjects) == [
        "[FIRING] down", "[FIRING] low", "[RESOLVED] down", "[RESOLVED] low",
    ]  # fmt: skip
    assert all(b"Content-ID: <chart-0." in raw for raw in mails.raw[:2])


@pytest.mark.stack
def test_without_zookeeper_and_mail_it_runs_and_says_what_is_wrong(tmp_path: Path) -> None:
    seed_rules(tmp_path / "rules")
    (tmp_path / "rules" / "bad.yaml").write_text("rules:\n- nam: x\n")
    config = AlertsConfig(
        "127.0.0.1:1", tmp_path / "rules", tmp_path / "data", mail_by(f"127.0.0.1:{free_port()}"),
        health=tmp_path / "alerts.json",
    )  # fmt: skip
    with running(config, SYSTEM_CLOCK):
        said = (
            tmp_path / "alerts.json"
        )  # two minutes of the clock may pass on a busy machine before the first evaluation
        eventually(lambda: said.exists() and bool(health_of(config).figures["evaluations"]), seconds=300)
        eventually(lambda: len(health_of(config).figures["problems"]) > 1)
        found = health_of(config)
        api = ApiClient(found.figures["api"])
        assert api.ask("/api/v2/status")["cluster"]["status"] == "disabled"
    assert found.state == "ok"
    assert found.figures["rules"] == {"inactive": 0, "pending": 0, "firing": 0, "error": 2}
    assert any("bad.yaml:2:3: rules[0].nam: unknown key" in problem for problem in found.figures["problems"])
    assert any("no shard" in problem for problem in found.figures["problems"])


def test_examples_are_copied_once(tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    assert seed_rules(folder)
    (folder / "endpoint-down.yaml").unlink()
    assert not seed_rules(folder)
    assert [path.name for path in folder.iterdir()] == ["kafka-gap.yaml"]


def test_the_command_refuses_what_cannot_work(tmp_path: Path) -> None:
    answer = artimon("alerts", "--data", str(tmp_path), "--smtp", "nowhere", "--zookeeper", "127.0.0.1:1")
    assert (answer.returncode, "host:port" in answer.stderr, "Traceback" in answer.stderr) == (1, True, False)


def test_an_api_open_to_all_is_refused(tmp_path: Path) -> None:
    config = AlertsConfig("127.0.0.1:1", tmp_path / "rules", tmp_path / "data", host="0.0.0.0")
    with pytest.raises(AlertsError, match="--api-token"):
        run_alerts(config, threading.Event())


def test_the_part_of_the_stack_comes_after_zookeeper() -> None:
    assert (AlertsPart.name, AlertsPart.starts_after) == ("alerts", ("zookeeper",))
    assert alerts.__all__


def test_external_labels_are_names_and_values() -> None:
    assert parse_external_labels(["site=paris", "path=a=b", "empty="]) == {"site": "paris", "path": "a=b", "empty": ""}
    for text, told in (("site", "NAME=VALUE"), ("1=x", "label"), ("__a=x", "reserved")):
        with pytest.raises(ValueError, match=told):
            parse_external_labels([text])
