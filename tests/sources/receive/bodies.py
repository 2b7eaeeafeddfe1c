"""Bodies of remote write, written field by field: independent of the messages of the receiver."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Mapping, Sequence

import cramjam

Labels = Mapping[str, str]
Points = Sequence[tuple[int, float]]


def by_length(value: object) -> str | None:
    """Return an id without the bytes, which differ from run to run and are long."""
    return f"{len(value)} bytes" if isinstance(value, bytes) else None


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def whole(field: int, data: bytes) -> bytes:
    """A field of bytes, of text or of a message."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def sample(time_ms: int, value: float | bytes, start_ms: int = 0) -> bytes:
    packed = value if isinstance(value, bytes) else struct.pack("<d", value)
    return varint(1 << 3 | 1) + packed + number(2, time_ms) + (number(3, start_ms) if start_ms else b"")


STALE_BYTES = struct.pack("<Q", 0x7FF0000000000002)


def series_1(labels: Labels, points: Sequence[tuple[int, float | bytes]], more: bytes = b"") -> bytes:
    pairs = b"".join(whole(1, whole(1, n.encode()) + whole(2, v.encode())) for n, v in sorted(labels.items()))
    return whole(1, pairs + b"".join(whole(2, sample(t, v)) for t, v in points) + more)


def odd_series(dice: random.Random, now_ms: int) -> list[bytes]:
    """Return 30 series of version 1: most with one sample, with values, times and fields of all kinds."""
    parts = []
    for n in range(30):
        labels = {"__name__": f"m{n}", "n": "x" * dice.choice((1, 1, 200))}
        values: list[float | bytes] = [0.0, -0.0, 1.5, math.inf, math.nan, STALE_BYTES, struct.pack("<q", -1)]
        times = (now_ms, now_ms + n, 5, 1 << 40, (1 << 42) + 1, -7, 0)
        count = dice.choice((1, 1, 1, 1, 2, 0))
        points = [(dice.choice(times), dice.choice(values)) for _ in range(count)]
        more = dice.choice((b"", b"", b"", number(9, 3), whole(4, b""), whole(2, b"")))
        raw = series_1(labels, points, more)
        if count == 1 and points[0][1] == 0.0 and not more:  # senders leave out zeros
            raw = series_1(labels, [], whole(2, number(2, points[0][0])))
        parts.append(raw)
    return parts


def odd_series_2(dice: random.Random, now_ms: int) -> bytes:
    """Return a body of version 2 with 30 series in any order: most with one sample, with values, times, starts and
    fields of all kinds."""
    texts = ["", "__name__", "n", "x", "x" * 200, "Help.", *(f"m{n}" for n in range(30))]
    dice.shuffle(texts)
    parts = []
    for n in dice.sample(range(30), 30):
        labels = ("__name__", f"m{n}", "n", dice.choice(("x", "x", "x" * 200, "")))
        refs = [texts.index(text) for text in labels][: dice.choice((4, 4, 4, 4, 2, 3, 0))]
        if dice.random() < 0.05:
            refs.append(dice.choice((len(texts), 1 << 20, 1 << 40)))
        values: list[float | bytes] = [0.0, -0.0, 1.5, math.inf, math.nan, STALE_BYTES, struct.pack("<q", -1)]
        count = dice.choice((1, 1, 1, 1, 2, 0))
        found = whole(1, b"".join(map(varint, refs)))
        for _ in range(count):
            time_ms = dice.choice((now_ms, now_ms + n, 5, 1 << 42, -7, 0))
            found += whole(2, sample(time_ms, dice.choice(values), dice.choice((0, 0, now_ms - 9))))
        found += dice.choice((b"", b"", whole(2, number(2, now_ms)), whole(3, b""), whole(4, b"any"), number(9, 3)))
        found += dice.choice(
            (b"", whole(5, number(1, n % 9) + number(3, texts.index("Help."))), whole(5, number(3, 99)))
        )
        parts.append(whole(5, found + dice.choice((b"", b"", number(6, now_ms - 99), number(6, -1)))))
    return b"".join([*(whole(4, text.encode()) for text in texts), *parts])


def metadata_1(kind: int, name: str, help_: str = "", unit: str = "") -> bytes:
    return whole(3, number(1, kind) + whole(2, name.encode()) + whole(4, help_.encode()) + whole(5, unit.encode()))


def request_1(*parts: bytes) -> bytes:
    return packed(b"".join(parts))


def packed(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def request_2(
    series: Sequence[tuple[Labels, Points]],
    kind: int = 0,
    created_ms: int = 0,
    help_: str = "",
    unit: str = "",
    start_ms: int = 0,
) -> bytes:
    """`start_ms`: start of each sample; `created_ms`: that of each series, as senders wrote it before."""
    symbols = [""]

    def refer(text: str) -> int:
        if text not in symbols:
            symbols.append(text)
        return symbols.index(text)

    out = b""
    for labels, points in series:
        refs = b"".join(varint(refer(text)) for pair in sorted(labels.items()) for text in pair)
        body = whole(1, refs) + b"".join(whole(2, sample(t, v, start_ms)) for t, v in points)
        body += whole(5, number(1, kind) + number(3, refer(help_)) + number(4, refer(unit)))
        out += whole(5, body + (number(6, created_ms) if created_ms else b""))
    return packed(b"".join(whole(4, text.encode()) for text in symbols) + out)
