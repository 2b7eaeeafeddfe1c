"""Collector processes: the shipped `Collector` and `KafkaQuotaGate`, between simulated network and simulated Kafka."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from artimon.model.batch_codec import verify
from pipeline.collector.collector import MAX_BYTES_IN_FLIGHT, MAX_MESSAGES, CallInFlight, Collector
from pipeline.collector.kafka_quota import KafkaQuotaGate, LogSizes, QuotaError
from pipeline.link.answers import decode_answer
from pipeline.link.collector_choice import COLLECTORS_PATH, CollectorEndpoint
from tests.simulation.kafka import SAMPLES, SimBroker, SimKafka, sizes_of
from tests.simulation.network import Network, Reply, Server
from tests.simulation.scheduler import Process, Scheduler, SimClock
from tests.simulation.zookeeper import SimZookeeper

MEASURE_S = 5.0
_LARGE = bytes(1 << 20)


class SimCollector(Process, Server):
    """One collector; each start has its own port."""

    def __init__(
        self,
        number: int,
        scheduler: Scheduler,
        kafka: SimKafka,
        zookeeper: SimZookeeper,
        network: Network,
        quota_bytes: int = 0,
    ) -> None:
        super().__init__(f"collector-{number}")
        self._scheduler, self._kafka, self._zookeeper, self._network = scheduler, kafka, zookeeper, network
        self._quota_bytes = quota_bytes
        self._port = 1000 * number
        self.endpoint = CollectorEndpoint("sim", 0)

    def start(self) -> None:
        """Serve and register."""
        self.started()
        self._port += 1
        self.endpoint = CollectorEndpoint("sim", self._port)
        clock = SimClock(self._scheduler, self)
        self._broker: Any = SimBroker(self._kafka, self._scheduler)
        self._quota = KafkaQuotaGate(self._quota_bytes, clock)
        self._collector = Collector(self._broker, "artimon", clock, self._quota, verify)
        self._network.servers[self.endpoint] = self
        self._begin()

    def _begin(self) -> None:
        """Register once Kafka has reported its size."""
        if self._quota_bytes:
            self._measure()
            if not self._quota.is_measured:
                self._scheduler.later(2.0, self._begin, self)
                return
        self._register()

    def _register(self) -> None:
        path = f"{COLLECTORS_PATH}/{self.name}"
        if path not in self._zookeeper.nodes and not self._zookeeper.down:
            data = json.dumps({"host": "sim", "port": self._port}).encode()
            self._zookeeper.write(path, data, new=True)
        self._scheduler.later(10.0, self._register, self)

    def kill(self) -> None:
        """Kill the process; its session ends a while later."""
        self.died()
        self._network.servers.pop(self.endpoint, None)
        path, port = f"{COLLECTORS_PATH}/{self.name}", self._port
        self._scheduler.later(self._scheduler.random.random() * 5, lambda: self._expire(path, port))

    def _expire(self, path: str, port: int) -> None:
        found = self._zookeeper.nodes.get(path)
        if found is not None and json.loads(found[0])["port"] == port:
            self._zookeeper.remove(path)

    def _measure(self) -> None:
        self._quota.measure(self._ask)
        self._scheduler.later(MEASURE_S, self._measure, self)

    def _ask(self) -> LogSizes:
        if self._kafka.down:
            raise QuotaError("Kafka does not answer")
        return sizes_of(self._kafka, SAMPLES)

    def flood(self) -> None:
        """Receive too many messages, and too many bytes."""
        for messages in ([b""] * (MAX_MESSAGES + 1), [_LARGE] * (MAX_BYTES_IN_FLIGHT // len(_LARGE) + 1)):
            self._collector.finish(self._collector.begin(messages), [])

    def receive(self, messages: Sequence[bytes], reply: Reply) -> None:
        received = self._collector.begin(messages)
        if not received.accepted:
            reply([decode_answer(raw) for raw in self._collector.finish(received, [])])
            return
        delay = self._delay()
        self._scheduler.later(delay, lambda: self._produce(received, reply), self)

    def _produce(self, received: CallInFlight, reply: Reply) -> None:
        written = self._broker.produce([message for _, message in received.accepted])

        def confirm() -> None:
            results = self._broker.confirm(written)
            reply([decode_answer(raw) for raw in self._collector.finish(received, results)])

        self._scheduler.later(self._delay(), confirm, self)

    def _delay(self) -> float:
        return 0.002 + self._scheduler.random.random() * 0.02 + self._kafka.slow
