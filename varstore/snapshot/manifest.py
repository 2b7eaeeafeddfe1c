"""Manifest of a snapshot: a small JSON file with a checksum, written last. docs/formats/image.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import xxhash

from artimon.model.vshards import from_hex, to_hex
from varstore.store.snapshot_frames import FORMAT, SnapshotFormatError

_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}")
"""Names of files: a manifest points to nothing outside its folder."""
_NAME = re.compile(r"manifest-(\d{15})\.json")
MAX_BYTES = 16 * 1024 * 1024

RowKey = tuple[int, int]
"""(step in ms, number of the bucket)."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One snapshot. Invariant: every file it names was durable before it was written."""

    sequence: int
    """Increases; the time of the snapshot, unless the clock went back."""
    shard: str
    vshards: int
    created_ms: int
    state: str
    """Name of the file with groups, blocks, slots and lives."""
    series: tuple[str, ...] = ()
    """Files of announced series, oldest first: the newest entry of a slot wins."""
    rows: Mapping[RowKey, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of every file named here."""

    @property
    def name(self) -> str:
        return manifest_name(self.sequence)

    def to_bytes(self) -> bytes:
        """Return a line of JSON and a line with its xxh3-64 in hex."""
        body = json.dumps(
            {
                "format": FORMAT,
                "sequence": self.sequence,
                "shard": self.shard,
                "vshards": to_hex(self.vshards),
                "created_ms": self.created_ms,
                "state": self.state,
                "series": list(self.series),
                "rows": [[*row, name] for row, name in sorted(self.rows.items())],
                "sizes": dict(sorted(self.sizes.items())),
            }
        ).encode()
        return body + b"\n" + xxhash.xxh3_64_hexdigest(body).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Manifest:
        """Parse the bytes of `to_bytes`. Raises SnapshotFormatError."""
        body, _, rest = data.partition(b"\n")
        if rest != xxhash.xxh3_64_hexdigest(body).encode() + b"\n":
            raise SnapshotFormatError(f"{where}: damaged or truncated")
        told = json.loads(body)
        if told.get("format") != FORMAT:
            raise SnapshotFormatError(f"{where}: format {told.get('format')}, this program reads {FORMAT}")
        try:
            made = cls(
                int(told["sequence"]),
                str(told["shard"]),
                from_hex(told["vshards"]),
                int(told["created_ms"]),
                str(told["state"]),
                tuple(str(name) for name in told["series"]),
                {(int(step), int(number)): str(name) for step, number, name in told["rows"]},
                {str(name): int(size) for name, size in told["sizes"].items()},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise SnapshotFormatError(f"{where}: unreadable: {error!r}") from error
        if bad := sorted(
            name for name in made.file_names if "/" in name or "\\" in name or name.startswith(".") or not name
        ):
            raise SnapshotFormatError(f"{where}: {bad[0][:100]!r} cannot name a file of this folder")
        if not made.file_names <= set(made.sizes):
            raise SnapshotFormatError(f"{where}: files without a size")
        return made

    @property
    def file_names(self) -> set[str]:
        """Files of this snapshot, without the manifest."""
        return {self.state, *self.series, *self.rows.values()}

    def missing_files(self, sizes: Mapping[str, int]) -> list[str]:
        """Return the files that are absent or have another size."""
        return sorted(name for name in self.file_names if sizes.get(name) != self.sizes[name])


def sequences(names: Iterable[str]) -> list[int]:
    """Return the sequences of the manifests among file names, newest first."""
    return sorted((int(match[1]) for name in names if (match := _NAME.fullmatch(name))), reverse=True)


def manifest_name(sequence: int) -> str:
    return f"manifest-{sequence:015d}.json"
