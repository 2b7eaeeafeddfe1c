"""The memory of a collector is bounded with fifty agents that ignore credits and a slow Kafka."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from artimon.model.batch import BatchId, BatchKind, Samples
from artimon.model.batch_codec import assemble, encode_samples, parse_header
from bookkeeper.rpc.framed_server import FramedClient, FramedError
from bookkeeper.rpc.thrift_messages import encode_call
from pipeline.collector.collector import MAX_BYTES_IN_FLIGHT
from pipeline.link.credits import MIN_CREDIT_BYTES
from pipeline.link.idl import collector_idl

LIMIT = 640 * 1024 * 1024
"""Of private writable memory (RLIMIT_DATA): about 90 MiB of a collector that does nothing, stacks of a hundred threads,
and each byte of HELD_BYTES about ten times, the slack of the allocator included."""
AGENTS = 50
CONNECTIONS = 2

SERVER = """
import resource, sys, time, uuid
from concurrent.futures import ThreadPoolExecutor
import threading
threading.stack_size(512 * 1024)
from pipeline.collector.kafka_writer import KafkaWriter, TopicDescription, _produce_request, position_of
from pipeline.collector.collector import Collector
from pipeline.collector.collector_process import CollectorConfig, server_of

class SlowKafka(KafkaWriter):
    '''Everything that a broker's client does but for the network: requests are built, kept a while, and answered.'''

    def _describe_newest(self, name):
        return TopicDescription("c", name, uuid.UUID(int=7), dict.fromkeys(range(8), 1), 1e18)

    def _send(self, node, rounds, results, until):
        sent = []
        for chunks in rounds:
            request = _produce_request(chunks, 1000)
            request.with_header(correlation_id=1, client_id="x")
            sent.append(network.submit(request.encode, version=13, header=True, framed=True).result())
        time.sleep(0.25)
        for chunk in (chunk for chunks in rounds for chunk in chunks):
            for place, index in enumerate(chunk.indices):
                results[index] = position_of(chunk.info, chunk.partition, place)

network = ThreadPoolExecutor(1)  # the client, too, encodes in one thread, which keeps a buffer
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
collector = Collector(SlowKafka("127.0.0.1:1"))
print(server_of(collector, CollectorConfig("c", "", "")).start(), flush=True)
sys.stdin.read()
"""


@contextmanager
def serving(limit: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-c", SERVER, str(limit)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def bodies(count: int) -> list[bytes]:
    """Bodies near the limit of 512 KiB."""
    generator = np.random.default_rng(5)
    rows, made = 10_000, []
    for number in range(count):
        random = generator.integers(0, 2**63, rows)
        births = generator.integers(0, 2**48, rows)
        samples = Samples(random.astype(np.uint64), random, births, np.zeros(rows, np.uint8), random[::-1].copy())
        made.append(encode_samples(BatchId("x", 1, 0, number), "s", bytes(16), 1, 1, "k", samples).data)
    return made


def call_of(agent: str, made: list[bytes]) -> list[bytes]:
    """The same bodies under identities of this agent."""
    messages = []
    for number, data in enumerate(made):
        head = parse_header(data)
        id = BatchId(agent, 1, number % 4, number)
        body = data[head.body_at :]
        messages.append(assemble(BatchKind.SAMPLES, id, "s", bytes(16), 1, 1, head.rows, 0, "k", body).data)
    return messages


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


@pytest.mark.parametrize("rounds", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_fifty_greedy_agents_and_a_slow_kafka_do_not_exhaust_a_limited_collector(rounds: int) -> None:
    made = bodies(13)
    answered: dict[str, int] = {}
    credits: list[int] = []

    def greedy(agent: str, port: int) -> None:
        messages = call_of(agent, made)
        assert len(encode_call(collector_idl().Collector, "send", [messages], 1)) > 3_500_000
        with FramedClient(collector_idl().Collector, "127.0.0.1", port) as client:
            for _ in range(rounds * 20):
                if answered.get(agent, 0) >= rounds:
                    return
                try:
                    answers = client.call("send", messages, timeout=60.0)
                except (FramedError, OSError):
                    continue
                assert all(answer.ok or answer.reason.startswith("full:") for answer in answers)
                credits.append(answers[0].credit)
                answered[agent] = answered.get(agent, 0) + 1

    with serving(LIMIT) as (process, port):
        names = [f"greedy-{number}" for number in range(AGENTS) for _ in range(CONNECTIONS)]
        threads = [threading.Thread(target=greedy, args=(name, port), daemon=True) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert process.poll() is None, "the collector died"
        assert peak_bytes(process.pid) < LIMIT
        assert {answered.get(name, 0) >= rounds for name in names} == {True}, "every agent was served"
        assert min(credits) == max(MIN_CREDIT_BYTES, MAX_BYTES_IN_FLIGHT // AGENTS)


def test_an_unbounded_reader_dies_under_the_same_limit() -> None:
    """Control experiment: under the same limit a process that reads everything it receives dies."""
    code = f"import resource; resource.setrlimit(resource.RLIMIT_DATA, ({LIMIT},) * 2); x = bytearray({LIMIT})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert "MemoryError" in done.stderr
