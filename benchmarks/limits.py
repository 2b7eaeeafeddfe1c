"""Limits of the machine: what the same bytes cost at least, by a plain loop, in the same run as the figure.

`limit.NAME` is printed beside NAME; its ratio is ours to the limit, so 1 is the limit. A limit does what cannot be
avoided (copy, scatter, read, fsync, send, sort, encode) and nothing else: no index, no check for repeats, no
protocol."""

from __future__ import annotations

import http.client
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import cramjam
import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from artimon.model.batch import BatchId
from artimon.model.batch_codec import encode_samples, parse_header
from artimon.rawtable.schema import FILE_SCHEMA
from artimon.runtime.file_access import read_file
from benchmarks.common import CORES, Line, emit
from benchmarks.loads.samples import MINUTE_MS, SERIES_A_SOURCE, Source
from pipeline.spark.raw_file import PARQUET

LIMIT = "limit."
MACHINE = "this machine, a plain loop"
ECHO = "HTTP echo of the same size"
AT_MEMORY_SPEED = "summed once at memory speed"
SAMPLE_BYTES = 16
"""A time and a value."""
MINUTES_OF_LEVELS = (5, 15, 60)
"""Minutes of a bucket of the levels above the finest."""
READ_BYTES = 512 << 20
CHUNK = 1 << 20
ECHO_ROUNDS = 41
ROUNDS = 3
ZSTD_LEVEL = 1
"""As in batches."""
LEAST_S = 1e-6
"""Least processor time: small work may take none by the clock of the kernel."""
ROWS_A_FILE = 3_000_000
POLLS_A_FILE = 8
"""Polls of one source in a file, as in an append of the benchmark of the pipeline."""
FIRST_MS = 1_800_000_000_000
HOUR_US = 3_600_000_000
Ints = npt.NDArray[np.int64]


def emit_limit(name: str, ours: float, limit: float, unit: str, *, more: bool = True) -> Line:
    """Print `limit.NAME`; `more`: a larger figure is better."""
    return emit(f"{LIMIT}{name}", limit, unit, MACHINE, ours / limit if more else limit / ours)


def emit_echo(name: str, ms: float, size: int) -> Line:
    """Print the limit of a question in milliseconds: an HTTP echo of as many bytes as its answer has."""
    return emit_limit(name, ms, echo_ms(size), f"ms ({ECHO})", more=False)


def bucket_rate(series: int, a_batch: int) -> float:
    """Return samples a second of one core: columns copied once, last values scattered to the slots of a minute, and
    finished minutes folded to the five statistics of every coarser level."""
    generator = np.random.default_rng(7)
    slots = np.concatenate([at + generator.permutation(a_batch) for at in range(0, series, a_batch)])
    columns = [generator.integers(0, 2**62, series) for _ in range(4)]
    cells, times = np.zeros(series, np.int64), np.zeros(series, np.int64)
    levels = [np.zeros((5, series), np.int64) for _ in MINUTES_OF_LEVELS]
    minutes = max(MINUTES_OF_LEVELS)
    began = time.process_time()
    for minute in range(minutes):
        for at in range(0, series, a_batch):
            _, time_ms, _, cell = (column[at : at + a_batch].copy() for column in columns)
            to = slots[at : at + a_batch]
            cells[to], times[to] = cell, time_ms
        for width, (last, least, most, total, count) in zip(MINUTES_OF_LEVELS, levels, strict=True):
            if minute % width == 0:
                last[:], least[:], most[:], total[:], count[:] = cells, cells, cells, cells, 1
                continue
            last[:] = cells
            np.minimum(least, cells, out=least)
            np.maximum(most, cells, out=most)
            total += cells
            count += 1
    return minutes * series / max(time.process_time() - began, LEAST_S)


@cache
def read_rate() -> float:
    """Return bytes a second at which one core sums a column that no cache holds."""
    column = np.ones(READ_BYTES // 8)
    return READ_BYTES / min(_timed(lambda: column.sum()) for _ in range(ROUNDS))


def echo_ms(size: int) -> float:
    """Return the median milliseconds from a request over HTTP to the last of `size` bytes, which are at hand."""
    with _answering(b"x" * size) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        took = [_timed(lambda: _get(connection)) for _ in range(ECHO_ROUNDS)]
        connection.close()
    return float(np.median(took)) * 1000


def _get(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", "/")
    connection.getresponse().read()


def carried_mb_s(folder: Path, batch: bytes, batches: int, a_group: int) -> float:
    """Return MB a second: batches appended to a file with an fsync for each group, sent over loopback, and appended to
    another file, whose writer acknowledges every group."""
    group = batch * a_group
    return _carried_mb_s(folder, lambda: group, batches // a_group)


def polled_rate(folder: Path, batch: bytes, batches: int, a_group: int, agents: int) -> float:
    """Return samples a second of `agents` processes: its buffers compressed for each batch, and carried
    as by `carried_mb_s`."""
    columns, spawn = columns_of(batch), get_context("spawn")
    buffers = [bytes(buffer) for column in columns.columns for buffer in column.buffers() if buffer]
    barrier, groups = spawn.Barrier(agents), max(1, batches // agents // a_group)
    with ProcessPoolExecutor(agents, spawn, initializer=barrier.wait) as pool:
        carry = partial(_carry_polled, folder, buffers, a_group)
        list(pool.map(carry, [1] * agents))  # imports are not part of the limit
        took = _timed(lambda: list(pool.map(carry, [groups] * agents)))
    return agents * groups * a_group * len(columns) / took


def _carry_polled(folder: Path, buffers: Sequence[bytes], a_group: int, groups: int) -> None:
    def group() -> bytes:
        return b"".join(bytes(cramjam.zstd.compress(one, ZSTD_LEVEL)) for _ in range(a_group) for one in buffers)

    with tempfile.TemporaryDirectory(dir=folder) as own:
        _carried_mb_s(Path(own), group, groups)


def _carried_mb_s(folder: Path, group: Callable[[], bytes], groups: int) -> float:
    """`group` returns the bytes of the next group, equally many each time."""
    groups, size = max(1, groups), len(group())
    with socket.create_server(("127.0.0.1", 0)) as listener, open(folder / "sent.bin", "wb", 0) as sent:
        receiver = threading.Thread(target=_receive, args=(listener, folder / "received.bin", size))
        receiver.start()
        with socket.create_connection(listener.getsockname()[:2]) as link:
            began, acknowledged = time.perf_counter(), 0
            for _ in range(groups):
                data = group()
                sent.write(data)
                os.fsync(sent.fileno())
                link.sendall(data)
            link.shutdown(socket.SHUT_WR)
            while acknowledged < groups:
                acknowledged += len(link.recv(groups - acknowledged) or b"?" * groups)
            took = time.perf_counter() - began
        receiver.join()
    for name in ("sent.bin", "received.bin"):
        (folder / name).unlink()
    return size * groups / 1e6 / took


def _receive(listener: socket.socket, path: Path, size: int) -> None:
    link, _ = listener.accept()
    buffer, held = bytearray(CHUNK), 0
    with link, open(path, "wb", 0) as file:
        while count := link.recv_into(buffer):
            file.write(memoryview(buffer)[:count])
            done, held = divmod(held + count, size)
            link.sendall(b"." * done)


def asked_s(requests: int, size: int, connections: int) -> float:
    """Return the seconds of `requests` requests with answers of `size` bytes over loopback, one after another on each
    of some connections."""
    with _answering(b"x" * size) as port:
        began = time.perf_counter()
        threads = [
            threading.Thread(target=_ask, args=(port, requests // connections, size)) for _ in range(connections)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - began


def _ask(port: int, requests: int, size: int) -> None:
    buffer = bytearray(CHUNK)
    with socket.create_connection(("127.0.0.1", port)) as link:
        for _ in range(requests):
            link.sendall(b"GET / HTTP/1.1\r\n\r\n")
            left = size
            while left > 0 and (count := link.recv_into(buffer)):
                left -= count


@contextmanager
def _answering(body: bytes) -> Iterator[int]:
    """Answer every request with the same bytes, in another process; yields its port."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_answer, args=(theirs, head, body), daemon=True)
    process.start()
    try:
        if not ours.poll(60):
            raise TimeoutError("the server of the limit does not start")
        yield int(ours.recv())
    finally:
        process.kill()
        process.join()


def _answer(pipe: Connection, head: bytes, body: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        while True:
            threading.Thread(target=_answer_all, args=(listener.accept()[0], head + body), daemon=True).start()


def _answer_all(link: socket.socket, answer: bytes) -> None:
    with link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asked = b""
        while more := link.recv(CHUNK):
            asked += more
            while b"\r\n\r\n" in asked:
                asked = asked.partition(b"\r\n\r\n")[2]
                link.sendall(answer)


def encoded_rate(folder: Path, rows: int) -> float:
    """Return samples a second of all cores: batches as they lie in Kafka decompressed, put in the order of the table,
    and written as Parquet with the columns and options of the table, so with the same bytes in and out."""
    workers = CORES
    sources = max(1, min(ROWS_A_FILE, rows // workers) // (SERIES_A_SOURCE * POLLS_A_FILE))
    files = max(1, rows // (sources * POLLS_A_FILE * SERIES_A_SOURCE))
    spawn = get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, initializer=_make_batches, initargs=(sources,)) as pool:
        list(pool.map(_encode, [folder] * workers, range(workers)))  # imports and batches are not part of the limit
        began = time.perf_counter()
        written = sum(pool.map(_encode, [folder] * files, range(files)))
        return written / (time.perf_counter() - began)


_made: list[bytes] = []
"""Batches of one file, in a process of the pool: all polls of one source after another."""


def _make_batches(sources: int) -> None:
    generator = np.random.default_rng(7)
    for number in range(sources):
        source = Source(number, generator, FIRST_MS)
        for poll in range(POLLS_A_FILE):
            at = FIRST_MS + poll * MINUTE_MS
            id = BatchId("limit", 1, 0, len(_made))
            batch = encode_samples(id, source.name, source.endpoint, FIRST_MS, at, "", source.poll(at))
            _made.append(batch.data)


def _encode(folder: Path, number: int) -> int:
    batches = [columns_of(one) for one in _made]
    columns = {name: pa.concat_arrays([one.column(name) for one in batches]) for name in batches[0].schema.names}
    series, polls = columns["series"].to_numpy().view(np.int64), np.arange(POLLS_A_FILE) * SERIES_A_SOURCE
    orders = [
        (np.argsort(series[at : at + SERIES_A_SOURCE])[:, None] + polls + at).reshape(-1)
        for at in range(0, len(series), POLLS_A_FILE * SERIES_A_SOURCE)
    ]
    order, rows = np.concatenate(orders), len(series)
    columns["series"] = pa.array(series)
    columns["source"] = pa.array(np.arange(rows, dtype=np.int32) // (POLLS_A_FILE * SERIES_A_SOURCE))
    columns["future"] = pa.array(np.zeros(rows, np.bool_))
    for name in ("time", "birth"):
        columns[name] = pa.array(columns[name].to_numpy() * 1000).view(FILE_SCHEMA.field(name).type)
    taken = [
        columns[field.name].take(pa.array(order)) if field.name in columns else pa.nulls(rows, field.type)
        for field in FILE_SCHEMA
    ]
    path = folder / f"limit-{number}.parquet"
    pq.write_table(pa.table(taken, schema=FILE_SCHEMA), path, **PARQUET)
    path.unlink()
    return rows


def columns_of(batch: bytes) -> pa.RecordBatch:
    """Return the decompressed columns of an encoded batch."""
    body, options = memoryview(batch)[parse_header(batch).body_at :], pa.ipc.IpcReadOptions(use_threads=False)
    return pa.ipc.open_stream(pa.py_buffer(body), options=options).read_next_batch()


def folded_rate(files: Sequence[bytes]) -> float:
    """Return samples a second of all cores: series, times and integers of files of the table decoded, and least,
    greatest and sum of each series and hour computed."""

    def fold(data: bytes) -> int:
        table = pq.read_table(pa.BufferReader(data), columns=["series", "time", "integer"], use_threads=False)
        series, times, values = (column.to_numpy().view(np.int64) for column in table.columns)
        hours = times // HOUR_US
        starts = np.flatnonzero(np.append(True, (np.diff(series) != 0) | (np.diff(hours) != 0)))
        for statistic in (np.minimum, np.maximum, np.add):
            statistic.reduceat(values, starts)
        return len(values)

    with ThreadPoolExecutor(CORES) as pool:
        began = time.perf_counter()
        return sum(pool.map(fold, files)) / (time.perf_counter() - began)


def imported_rate(export: Path, folder: Path) -> float:
    """Return samples a second of all cores: lines of JSON decoded, their integers and times written as Parquet."""
    workers, spawn = CORES, get_context("spawn")
    with ProcessPoolExecutor(workers, spawn) as pool:
        work = partial(_import, export, folder, workers)
        list(pool.map(partial(work, most=1), range(workers)))  # imports are not part of the limit
        began = time.perf_counter()
        return sum(pool.map(work, range(workers))) / (time.perf_counter() - began)


def _import(export: Path, folder: Path, workers: int, number: int, most: int | None = None) -> int:
    times, values = list[Ints](), list[Ints]()
    with open(export, "rb") as lines:
        for line in islice(lines, number, None if most is None else number + most, workers):
            one = orjson.loads(line)
            times.append(np.array(one["timestamps"], np.int64))
            values.append(np.array(one["values"], np.int64))
    columns = {"time": np.concatenate(times), "value": np.concatenate(values)}
    table, path = pa.table(columns), folder / f"{number}.limit"
    encoding = dict.fromkeys(columns, "DELTA_BINARY_PACKED")
    pq.write_table(table, path, compression="zstd", use_dictionary=False, column_encoding=encoding)
    path.unlink()
    return len(table)


def fetched_s(uris: Sequence[str]) -> float:
    """Return the seconds in which files are fetched whole, several at a time."""
    with ThreadPoolExecutor(CORES) as pool:
        return min(_timed(lambda: list(pool.map(read_file, uris))) for _ in range(2))


def file_read_s(paths: Sequence[Path]) -> float:
    """Return the seconds in which the bytes of files are read into memory."""
    buffer = bytearray(CHUNK)

    def read() -> None:
        for path in paths:
            with open(path, "rb", 0) as file:
                while file.readinto(buffer):
                    pass

    return min(_timed(read) for _ in range(2))


def file_write_s(path: Path, size: int) -> float:
    """Return the seconds in which as many bytes are written to a new file, with an fsync at the end."""
    chunk = os.urandom(CHUNK)
    began = time.perf_counter()
    with open(path, "wb", 0) as file:
        for at in range(0, size, CHUNK):
            file.write(chunk[: size - at])
        os.fsync(file.fileno())
    took = time.perf_counter() - began
    path.unlink()
    return took


def lines_rate(text: str) -> float:
    """Return lines a second: text split at lines and spaces, and the last word of each read as a number."""

    def read() -> list[float]:
        return [float(line.rpartition(" ")[2]) for line in text.splitlines()]

    return text.count("\n") / min(_timed(read) for _ in range(ROUNDS))


def series_rate(text: str) -> float:
    """Return lines a second: text split at lines, labels and values, a dictionary of the labels of each line made, and
    the value read as a number."""

    def read() -> list[tuple[str, dict[str, str], float]]:
        found = []
        for line in text.splitlines():
            name, _, rest = line.partition("{")
            labels, _, value = rest.partition("} ")
            found.append((name, dict(label.split("=", 1) for label in labels.split(",")), float(value)))
        return found

    return text.count("\n") / min(_timed(read) for _ in range(ROUNDS))


def entropy_bytes(steps: npt.NDArray[np.integer]) -> float:
    """Return the entropy of independent steps in bytes: fewer no code can take for each."""
    share = np.unique_counts(steps).counts / steps.size
    return float(-(share * np.log2(share)).sum() / 8)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
