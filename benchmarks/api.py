"""Answers of the API over HTTP: 10,000 series x 60 buckets as JSON, CSV and Arrow, from a shard in memory to the last
byte at the client. The peer writes the same cells with pandas, without a server: a lower bound for any service that
uses pandas.
"""

import http.client
import io
import multiprocessing
from multiprocessing.connection import Connection
from time import perf_counter
from urllib.parse import quote

import numpy as np
import pandas as pd
import xxhash

from artimon.api.api_limits import ApiLimits
from artimon.api.api_server import ApiServer
from artimon.api.app import make_app
from artimon.api.matrix_service import MatrixServer, idl
from artimon.model.batch import BatchId, Samples, SeriesBlock, SeriesInfo
from artimon.model.clock import ManualClock
from artimon.model.feed_codec import FeedEntry, FeedRange, concat_samples
from artimon.model.fingerprint import fingerprint
from artimon.model.labels import canonical
from artimon.model.values import Kind, ValueType
from benchmarks.common import emit, interleaved
from benchmarks.limits import ECHO, echo_ms, emit_echo, emit_limit
from bookkeeper.rpc.framed_server import FramedClient
from varstore.shard.shard import Shard

SERIES, BUCKETS, MINUTE = 10_000, 60, 60_000
NOW = 1_800_000_000_000
ROUNDS = 5
QUESTION = f"fetch('bench.value').range('{BUCKETS}m')"
RACKS = "fetch('bench.value').mean(by=['rack']).range('60m')"


def loaded_shard() -> Shard:
    """Return a shard with a sample a minute of every series, half of them integers."""
    shard = Shard(capacity=SERIES + 100)
    texts = [canonical("bench.value", {"host": f"host-{i:05}", "rack": f"r{i % 100:02}"}) for i in range(SERIES)]
    prints = [fingerprint(text) for text in texts]
    kinds = [ValueType.INTEGER if i % 2 else ValueType.DOUBLE for i in range(SERIES)]
    for start in range(0, SERIES, 1_000):
        stop = start + 1_000
        infos = tuple(
            SeriesInfo(text, kind, Kind.GAUGE) for text, kind in zip(texts[start:stop], kinds[start:stop], strict=True)
        )
        shard.announce(SeriesBlock("s0", start // 1_000, 1, infos))
    random = np.random.default_rng(7)
    for minute in range(BUCKETS):
        time_ms = NOW - (BUCKETS - minute) * MINUTE - 1
        numbers = random.normal(1_000, 200, SERIES)
        samples = Samples.of(
            [
                (p, time_ms, NOW - 10**8, int(v) if k is ValueType.INTEGER else float(v))
                for p, k, v in zip(prints, kinds, numbers, strict=True)
            ]
        )
        entry = FeedEntry(
            minute,
            time_ms + 500,
            BatchId("bench", 1, 0, minute),
            "s0",
            time_ms,
            SERIES,
            True,
            xxhash.xxh3_64_intdigest(samples.fingerprint.tobytes()),
        )
        shard.feed(FeedRange("bench", 0, minute, minute + 1, (entry,), concat_samples([samples])))
    return shard


def serve(pipe: Connection) -> None:
    """Run the API's process: send its ports through the pipe, and end at the next message."""
    app = make_app(loaded_shard(), lambda _: {}, ManualClock(NOW), ApiLimits())
    server, matrices = ApiServer(app), MatrixServer(app.state.desk)
    server.start()
    matrices.start()
    pipe.send((server.port, matrices.port))
    pipe.recv()
    matrices.stop()
    server.stop()


class Asker:
    """Client with one keep-alive connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.size = 0

    def seconds(self, text: str, form: str, encoding: str = "identity") -> float:
        """Send a query; return the seconds to the last byte."""
        began = perf_counter()
        self._connection.request(
            "GET", f"/api/query?q={quote(text)}&format={form}", headers={"Accept-Encoding": encoding}
        )
        answer = self._connection.getresponse()
        self.size = len(answer.read())
        took = perf_counter() - began
        if answer.status != 200:
            raise RuntimeError(f"{form}: status {answer.status}")
        return took


def frame() -> pd.DataFrame:
    """Return the same cells as the long table of the CSV."""
    names = [canonical("bench.value", {"host": f"host-{i:05}", "rack": f"r{i % 100:02}"}) for i in range(SERIES)]
    values = np.random.default_rng(7).normal(1_000, 200, SERIES * BUCKETS)
    times = NOW - np.arange(BUCKETS)[::-1] * MINUTE
    return pd.DataFrame(
        {
            "series": np.repeat(names, BUCKETS),
            "name": "bench.value",
            "type": "DOUBLE",
            "time_ms": np.tile(times, SERIES),
            "time": pd.to_datetime(np.tile(times, SERIES), unit="ms", utc=True),
            "value": values,
        }
    )


def pandas_seconds(table: pd.DataFrame, form: str) -> float:
    """Return the seconds that pandas takes to write the table."""
    began = perf_counter()
    if form == "csv":
        table.to_csv(io.StringIO(), index=False)
    else:
        table.to_json(io.StringIO(), orient="records", lines=True)
    return perf_counter() - began


def thrift_seconds(client: FramedClient) -> float:
    """Seconds for 10,000 series x 10 buckets, decoded; Thrift answers are limited to 16 MB."""
    began = perf_counter()
    answer = client.call("query", "fetch('bench.value').range('10m')", 0, timeout=60)
    if len(answer.rows) != SERIES:
        raise RuntimeError(f"{len(answer.rows)} rows")
    return perf_counter() - began


def main() -> None:
    """Start the API and print the lines."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    port, thrift_port = ours.recv()
    try:
        measure(Asker(port))
        with FramedClient(idl().Matrix, "127.0.0.1", thrift_port, 60) as client:
            took = interleaved(3, lambda: thrift_seconds(client))[0]
            emit("api.thrift.10000x10", took * 1000, "ms")
    finally:
        ours.send("end")
        process.join(10)


def measure(asker: Asker) -> None:
    """Measure time and bytes of each format."""
    table = frame()
    forms = [("json", "identity"), ("json", "gzip"), ("csv", "identity"), ("arrow", "identity")]
    sizes = dict[str, tuple[float, int]]()
    asker.seconds(QUESTION, "arrow")
    for form, encoding in forms:

        def ours(form: str = form, encoding: str = encoding) -> float:
            return asker.seconds(QUESTION, form, encoding)

        name = f"api.{form}" + (".gzip" if encoding == "gzip" else "")
        if form in ("json", "csv") and encoding == "identity":
            took, other = interleaved(2, ours, lambda form=form: pandas_seconds(table, form))  # type: ignore[misc]
            emit(f"{name}.queries", 1 / took, "1/s", f"pandas to_{form}, no server", other / took)
            emit(f"peer.pandas.{name}.queries", 1 / other, "1/s, no server")
        else:
            took = interleaved(ROUNDS, ours)[0]
            emit(f"{name}.queries", 1 / took, "1/s")
        sizes[f"{name}.queries"] = took, asker.size
        emit(f"{name}.bytes", asker.size / took / 1e6, "MB/s")
        emit(f"{name}.size", asker.size / 1e6, "MB")
    took = interleaved(ROUNDS, lambda: asker.seconds(RACKS, "json"))[0]
    emit("api.mean.by.rack.10000x60", took * 1000, "ms")
    emit_echo("api.mean.by.rack.10000x60", took * 1000, asker.size)
    for name, (took, size) in sizes.items():
        emit_limit(name, 1 / took, 1000 / echo_ms(size), f"1/s ({ECHO})")


if __name__ == "__main__":
    main()
