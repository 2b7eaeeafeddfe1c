"""Text format of Prometheus for `/federate`: the newest sample of each series.

https://prometheus.io/docs/instrumenting/exposition_formats/ defines it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from artimon.api.json_points import number
from artimon.compute.packed_samples import newest
from artimon.model.select import NAME
from query_dsl.promql.samples import SeriesSamples

PIECE_SERIES = 1_000
_INVALID = re.compile(r"[^a-zA-Z0-9_:]")
_PLAIN = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def accepts_utf8(accept: str) -> bool:
    """True if a header Accept takes names beyond the classic characters."""
    return "escaping=allow-utf-8" in accept.replace(" ", "").lower()


def content_type(utf8: bool) -> str:
    """Return the content type of the text."""
    told = "version=1.0.0; charset=utf-8; escaping=allow-utf-8" if utf8 else "version=0.0.4; charset=utf-8"
    return f"text/plain; {told}"


def format_newest(
    samples: SeriesSamples, now_ms: int, look_back_ms: int, utf8: bool, notes: Sequence[str]
) -> Iterator[bytes]:
    """Yield the text in pieces: metrics by name; ended series are left out. Notes are comments."""
    values, times, here = newest(samples, np.array([now_ms], np.int64), look_back_ms)
    labels = samples.labels.dicts()
    rows = sorted(
        (row for row in np.flatnonzero(here[:, 0]).tolist() if labels[row].get(NAME)),
        key=lambda row: (labels[row][NAME], sorted(labels[row].items())),
    )
    yield "".join(f"# note: {' '.join(note.split())}\n" for note in notes).encode("utf-8", "backslashreplace")
    last = ""
    for at in range(0, len(rows), PIECE_SERIES):
        lines = []
        for row in rows[at : at + PIECE_SERIES]:
            name = _name(labels[row][NAME], utf8)
            if name != last:
                lines.append(f"# TYPE {name} untyped\n")
                last = name
            lines.append(f"{_sample(name, labels[row])} {number(float(values[row, 0]))} {int(times[row, 0])}\n")
        yield "".join(lines).encode("utf-8", "backslashreplace")


def _name(name: str, utf8: bool) -> str:
    if _PLAIN.fullmatch(name):
        return name
    if utf8:
        return f'"{name.translate(_ESCAPES)}"'
    escaped = _INVALID.sub("_", name)
    return f"_{escaped}" if escaped[:1].isdigit() else escaped


def _sample(name: str, labels: dict[str, str]) -> str:
    """Return name and labels; without an instance the label is empty, so that a scraper adds none."""
    told = {"instance": "", **labels}
    pairs = [f'{label}="{value.translate(_ESCAPES)}"' for label, value in sorted(told.items()) if label != NAME]
    return f"{{{','.join([name, *pairs])}}}" if name.startswith('"') else f"{name}{{{','.join(pairs)}}}"
