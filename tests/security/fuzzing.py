"""Mutated messages for everything that decodes what others wrote, in a process under a memory limit.

    python -m tests.security.fuzzing --seed 1 --seconds 30
    python -m tests.security.fuzzing --seed 1 --case 4711       # one case again

A case may end in the errors that its decoder names and in no others, within the memory that its limits allow. The
number of the case under way stands in the file `--progress`, for whoever sees this process die.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import resource
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from artimon.compute.aggregate import AggregateRequest, aggregate_buckets, decode_aggregate, encode_aggregate
from artimon.compute.reduction import WindowPlan
from artimon.model import batch_codec as codec
from artimon.model.batch import MAX_DECODED_BYTES, BatchError, BatchId, BatchKind, Samples, SeriesBlock, SeriesInfo
from artimon.model.event import Event
from artimon.model.event_codec import decode_events, encode_events
from artimon.model.feed_codec import decode_range, encode_range
from artimon.model.grid import Grid
from artimon.model.ipc import read_ipc, write_ipc
from artimon.model.select import Buckets, decode_buckets, encode_buckets
from artimon.model.series_table import Series
from artimon.model.values import Kind, Value, ValueType
from artimon.rawtable.announced_rows import rows_of
from bookkeeper.rpc.thrift_messages import FrameError, decode_struct, encode_call, parse_message
from pipeline.collector.hdfs import batch_file
from pipeline.link.idl import collector_idl
from pipeline.spark import decoder_trial as trial
from pipeline.spark import feed_task as feeding
from pipeline.spark import message_checks as messages
from pipeline.wal import segment_format as framing
from pipeline.wal import state_records as records
from query_dsl.stores.partial_codec import decode_partial
from sources.base.source_errors import PollError
from sources.poll.poll_codec import decode_answer
from tests.security.attacks import bomb
from tests.sources.helpers import columns, reply
from tests.varstore.worlds import TOPIC, TestBatch, announce, range_of
from varstore.shard.shard import Shard
from varstore.store.snapshot_frames import SnapshotFormatError, decode_frame, encode_frame

ROOT = Path(__file__).resolve().parents[2]
MiB = 1 << 20
HEADROOM = 1024 * MiB
"""Address space beyond what the process has when all is loaded."""
NOW = 1_800_000_000_000
_INTERESTING = (0, 1, -1, 2, 7, 8, 255, 10_000, 10_001, 1 << 20, 8_000_000, 1 << 31, (1 << 31) - 1, 1 << 40, 1 << 62)


class Target(NamedTuple):
    """One decoder. `repair` makes checksums right again, so that mutations get behind them."""

    samples: Sequence[bytes]
    decode: Callable[[bytes], object]
    refusals: tuple[type[BaseException], ...]
    repair: Callable[[bytes], bytes] = bytes
    memory: int = 8 * MiB
    """Bytes that Arrow may allocate at once."""


class Violation(AssertionError):
    """A decoder did what it must not do."""


def batch_samples() -> list[bytes]:
    """Batches of all types, of one type, of long strings, of nothing; and one that asks for too much."""
    id_ = BatchId("agent-1", 7, 1, 41)
    mixed = [(n, NOW + n, NOW, [n, n / 3, n % 2 == 0, f"text {n}", None][n % 5]) for n in range(300)]
    rows: list[Any] = [mixed, [(n, NOW, NOW, n) for n in range(1_500)], [(1, NOW, NOW, "x" * 30_000)], []]
    made = [codec.encode_samples(id_, "shop/h/0", bytes(16), NOW, NOW, "default", Samples.of(part)) for part in rows]
    return [*(one.data for one in made), bomb("bomb/h/0")]


def series_samples() -> list[bytes]:
    infos = tuple(
        SeriesInfo(f'v{n}{{a="{n % 7}"}}', ValueType(n % 4), Kind(n % 3), f"help {n}", "s", NOW) for n in range(200)
    )
    blocks = [SeriesBlock("shop/h/0", n, NOW, infos[: n * 100]) for n in range(3)]
    return [codec.encode_series("agent-1", block).data for block in blocks]


def event_samples() -> list[bytes]:
    events = [Event({"host": f"h{n}", "k": "v" * n}, b"line %d" % n) for n in range(100)]
    return [encode_events(BatchId("agent-1", 7, 1, 3), "flow", NOW, part).data for part in (events, events[:1], [])]


def resealed(data: bytes) -> bytes:
    """A batch with the length of its body and its digest made right."""
    if len(data) < codec.HEADER_BYTES:
        return data
    fields = list(codec._FIXED.unpack_from(data))
    fields[11] = max(0, len(data) - codec.HEADER_BYTES - sum(fields[12:]))
    fixed, rest = codec._FIXED.pack(*fields), data[codec.HEADER_BYTES :]
    return fixed + codec._digest(fixed, rest) + rest


def decode_batch(data: bytes) -> None:
    """Do everything that collector, agent, raw query and buckets query do with a batch of samples."""
    header = codec.verify_limits(data)
    if header.kind != BatchKind.SAMPLES:
        raise BatchError("another kind")
    samples = codec.decode_samples(header, data)
    samples.rows()
    reason = trial.check_storable(data)
    if "failed to store" in reason:
        raise Violation(reason)
    feeding.read_batch(messages.check_message(data, header.poll_ms), data)


@cache
def shard() -> Shard:
    made = Shard(capacity=1_000)
    announce(made, range(5))
    return made


def decode_block(data: bytes) -> None:
    """An announcement on its way into the table of series and into a shard."""
    block = codec.decode_series(codec.verify(data), data)
    rows_of([block], {block.source: 1})
    shard().announce(block, NOW)


def feed_samples() -> list[bytes]:
    def batch(number: int) -> TestBatch:
        rows: list[Any] = [(n, NOW + number, NOW, [n, n / 3, True, f"t{n}", None][n % 5]) for n in range(50)]
        return TestBatch(BatchId("agent", 1, 0, number), "s0", NOW + 1_000, rows)

    log = [batch(n) for n in range(6)]
    return [joined(encode_range(range_of(log, 0, until))) for until in (0, 1, 6)]


def joined(parts: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def decode_feed(data: bytes) -> None:
    """Three parts, each behind its length, into a shard."""
    parts, at = [], 0
    for _ in range(3):
        size = int.from_bytes(data[at : at + 4], "little")
        parts.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    range_ = decode_range(parts)
    taking = shard()
    if range_.topic_id == TOPIC:
        taking.feed(range_)
    if taking.broken:
        shard.cache_clear()
        raise Violation(taking.broken)


def frame_samples() -> list[bytes]:
    send = encode_call(collector_idl().Collector, "send", ([b"x" * 100, b"", b"y" * 5],), 3)
    delivered = encode_call(collector_idl().Collector, "delivered", (["a/1/2/3", "b"],), 4)
    return [send[4:], delivered[4:]]


def decode_call(data: bytes) -> None:
    """A frame as the collector's server reads it."""
    message = parse_message(data)
    args = getattr(collector_idl().Collector, f"{message.method}_args", None)
    if args is not None:
        decode_struct(message, args())


def poll_samples() -> list[bytes]:
    values: dict[str, Value] = {"a": 1, "b": 0.5, "c": True, "d": "text"}
    return [reply(columns(bytes(16), values, schema=schema), 5)[4:] for schema in (True, False)]


def log_samples() -> list[bytes]:
    golden = (ROOT / "tests" / "golden" / "wal" / "segment.bin").read_bytes()
    return [golden]


def decode_log(data: bytes) -> None:
    """A segment of an agent's log, and each record in it."""
    segment = int.from_bytes(data[8:16], "little")
    readers = {
        framing.RecordType.SENT: records.decode_sent,
        framing.RecordType.ACKED: records.decode_acked,
        framing.RecordType.FORGOTTEN: records.decode_forgotten,
        framing.RecordType.END: records.decode_end,
        framing.RecordType.CURSOR: records.decode_cursor,
    }
    for record in framing.scan_segment(data, segment).records:
        payload = data[record.payload_at : record.end]
        try:
            if record.type in (framing.RecordType.BATCH, framing.RecordType.SERIES):
                codec.verify_limits(payload)
            elif record.type in readers:
                readers[record.type](payload)
        except (BatchError, records.InvalidPayloadError):
            pass


def decode_record(data: bytes) -> None:
    """The payload of a record of each type, behind its checksum."""
    for read in (
        records.decode_sent,
        records.decode_acked,
        records.decode_forgotten,
        records.decode_end,
        records.decode_cursor,
    ):
        try:
            read(data)
        except records.InvalidPayloadError:
            pass


def record_samples() -> list[bytes]:
    ids = [BatchId("agent-1", 7, 1, n) for n in (1, 2, 3, 9)]
    return [*records.encode_acked(ids), records.encode_cursor("branch", 3, 99), records.encode_end(4)]


def image_samples() -> list[bytes]:
    slots = {"slot": np.arange(500, dtype=np.uint32), "fingerprint": np.arange(500, dtype=np.uint64)}
    return [
        encode_frame("head", {"levels": [[60_000, 60]], "head_ms": NOW, "groups": 1}, {}),
        encode_frame("slots", {}, {**slots, "text": [None, "a"] * 250}),
        encode_frame("end", {"parts": 2}, {}),
    ]


def refreshed(data: bytes) -> bytes:
    """A frame with length and checksum made right."""
    payload = data[16:]
    return struct.pack("<4sIQ", b"AIMG", len(payload), xxhash.xxh3_64_intdigest(payload)) + payload


def _buckets() -> Buckets:
    grid = Grid(NOW, 60_000, 4)
    series = [Series(n, f"v{n}", {"rack": f"r{n % 3}"}, ValueType.INTEGER, Kind.COUNTER) for n in range(30)]
    matrix = np.arange(120, dtype=np.int64).reshape(30, 4)
    lives = np.zeros(0, dtype=[(n, np.int64) for n in ("row", "birth_ms", "first_ms", "last_ms", "last")])
    zeros = np.zeros(30, np.int64)
    return Buckets(grid, series, {"last": matrix, "count": matrix}, (), lives, zeros, zeros)


def answer_samples() -> list[bytes]:
    many = _buckets()
    few = Buckets(many.grid, many.series[:3], {k: v[:3] for k, v in many.statistics.items()}, (), many.births,
                  many.ended_ms[:3], many.newest_ms[:3])  # fmt: skip
    return [encode_buckets(many), encode_buckets(few, small=True)]


def aggregate_samples() -> list[bytes]:
    windows = WindowPlan("last", 4)
    request = AggregateRequest((), Grid(NOW, 60_000, 4), windows, "sum", ("rack",))
    return [encode_aggregate(aggregate_buckets(_buckets(), request))]


def piece_samples() -> list[bytes]:
    flat = np.zeros(18 * 10, np.int64)
    head = b'{"lengths": [' + b", ".join([b"10"] * 18) + b'], "strings": [], "samples": 1, "columns": 1, "bytes": 1440}'
    return [len(head).to_bytes(8, "big") + head + bytes(pa.compress(flat.tobytes(), "zstd", asbytes=True))]


def stream_samples() -> list[bytes]:
    nested = pa.record_batch(
        [pa.array([[1, 2], [], None]), pa.array(["a", "b", "a"]).dictionary_encode()], names=["list", "coded"]
    )
    return [write_ipc(nested)]


_PLAIN = (ValueError, KeyError, TypeError, IndexError, pa.ArrowException, StopIteration, OverflowError)
"""What an answer of a shard or a task may raise: both ends are one program, the caller names them a failed answer."""


@cache
def targets() -> dict[str, Target]:
    decoded = 4 * MAX_DECODED_BYTES
    return {
        "samples": Target(batch_samples(), decode_batch, (BatchError,), resealed, decoded),
        "announcement": Target(series_samples(), decode_block, (BatchError,), resealed, decoded),
        "events": Target(event_samples(), decode_events, (BatchError,), resealed, decoded),
        "feed": Target(feed_samples(), decode_feed, (BatchError,)),
        "frame": Target(frame_samples(), decode_call, (FrameError,)),
        "poll": Target(poll_samples(), lambda data: decode_answer(data, 5, None, 1_000), (PollError,)),
        "log": Target(log_samples(), decode_log, ()),
        "record": Target(record_samples(), decode_record, ()),
        "direct": Target(
            [(ROOT / "tests" / "golden" / "direct" / "two.batches").read_bytes()],
            batch_file.decode,
            (batch_file.BatchFileError,),
        ),
        "image": Target(image_samples(), decode_frame, (SnapshotFormatError,), refreshed, 600 * MiB),
        "buckets": Target(answer_samples(), decode_buckets, _PLAIN),
        "aggregate": Target(aggregate_samples(), decode_aggregate, _PLAIN),
        "piece": Target(piece_samples(), decode_partial, (*_PLAIN, OSError)),
        "stream": Target(stream_samples(), read_ipc, (*_PLAIN, OSError)),
    }


def mutated(data: bytes, other: bytes, draw: random.Random) -> bytes:
    """`data` with some things changed, often near its beginning, where lengths stand."""
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        if not out:
            break
        at = draw.randrange(min(len(out), draw.choice((128, 1_024, len(out)))))
        match draw.randrange(8):
            case 0:
                out[at] ^= 1 << draw.randrange(8)
            case 1:
                out[at] = draw.randrange(256)
            case 2:
                out[at : at + 8] = _number(draw, 8)[: len(out) - at]
            case 3:
                out[at : at + 4] = _number(draw, 4)[: len(out) - at]
            case 4:
                del out[at : at + draw.choice((1, 8, 100))]
            case 5:
                out[at:at] = out[at : at + draw.choice((1, 8, 100))]
            case 6:
                out = out[:at] if draw.random() < 0.3 else out
            case _:
                begin = draw.randrange(max(1, len(other)))
                out[at : at + 64] = other[begin : begin + 64]
    return bytes(out)


def _number(draw: random.Random, size: int) -> bytes:
    mask = (1 << 8 * size) - 1
    value = draw.choice(_INTERESTING) if draw.random() < 0.8 else draw.getrandbits(8 * size)
    return (value & mask).to_bytes(size, draw.choice(("little", "little", "big")))


@cache
def pool_of(name: str) -> Any:
    """Arrow's memory for one target, with its own peak. Never freed, not even as the interpreter ends: a buffer does
    not keep its pool, and one that lives on (a column that a module remembers) is given back to the pool later."""
    pool = pa.proxy_memory_pool(pa.system_memory_pool())
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
    return pool


def run_case(seed: str, number: int, name: str = "") -> str:
    """One case; its target. Raises whatever must not happen."""
    draw = random.Random(f"{seed}/{number}")
    drawn = draw.choice(sorted(targets()))
    target = targets()[name or drawn]
    data = mutated(draw.choice(target.samples), draw.choice(target.samples), draw)
    if draw.random() < 0.9:
        data = target.repair(data)
    pool, before = pool_of(name or drawn), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        target.decode(data)
    except target.refusals:
        pass
    finally:
        pa.set_memory_pool(before)
    if pool.max_memory() > target.memory:
        raise Violation(f"{pool.max_memory()} bytes of {len(data)}: at most {target.memory}")
    return name or drawn


def limit_memory() -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + HEADROOM, size + HEADROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", required=True)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--case", type=int)
    parser.add_argument("--target", default="")
    parser.add_argument("--progress", type=Path, default=Path(os.devnull))
    told = parser.parse_args(arguments)
    for target in targets().values():  # what is not mutated is taken, and all is loaded
        for sample in target.samples:
            try:
                target.decode(sample)
            except target.refusals:
                pass
    limit_memory()
    number, end = told.case or 0, monotonic() + told.seconds
    with told.progress.open("wb", buffering=0) as progress:
        while number == told.case or (told.case is None and monotonic() < end):
            os.pwrite(progress.fileno(), b"%012d" % number, 0)
            try:
                run_case(told.seed, number, told.target)
            except BaseException:
                traceback.print_exc()
                print(f"again: {again(told.seed, number, told.target)}", flush=True)
                return 1
            number += 1
    print(f"{number} cases of seed {told.seed}, none broke a limit")
    return 0


def again(seed: str, number: int, target: str = "") -> str:
    """The command that repeats a case."""
    more = f" --target {target}" if target else ""
    return f"python -m tests.security.fuzzing --seed {seed} --case {number}{more}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
