"""The Thrift face of a shard: what arrives is checked and handed on, what goes out is encoded."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any

import thriftpy2

import artimon.model
from artimon.model.batch import BatchError
from artimon.model.feed import decode_range
from artimon.model.select import Matcher, SelectError, SelectRequest, Series, encode_buckets
from varstore.shard import Shard, ShardBroken

SELECTS_AT_ONCE = 4
SELECT_WAIT_S = 8.0
MAX_NAMES = 100_000
MAX_FOUND = 100_000

Notes = Callable[[], tuple[str, ...]]


@lru_cache(maxsize=1)
def idl() -> Any:
    """The loaded artimon/model/shard.thrift: `.Shard` is the service, `.ShardError`, `.FeedAnswer`, `.Position`."""
    path = Path(artimon.model.__file__).with_name("shard.thrift")
    return thriftpy2.load(str(path), module_name="artimon_shard_thrift")


class ShardService:
    """Handler of the service Shard. Everything that goes wrong is a ShardError with a text for the caller.

    `notes` says why answers are not whole yet (empty: they are)."""

    def __init__(self, shard: Shard, notes: Notes = tuple) -> None:
        self._shard, self._notes = shard, notes
        self._selects = threading.BoundedSemaphore(SELECTS_AT_ONCE)
        self._counting = threading.Lock()
        """Guards the counts below."""
        self._answered = self._refused = 0
        self._took_s = 0.0

    def figures(self) -> dict[str, int]:
        """Questions for buckets since the start: how many, their time together, how many were refused."""
        with self._counting:
            return {"selects": self._answered, "selects_ms": int(self._took_s * 1000), "refused": self._refused}

    def _count(self, began: float, answered: bool) -> None:
        with self._counting:
            self._took_s += monotonic() - began
            self._answered += answered
            self._refused += not answered

    def feed(self, parts: Sequence[bytes]) -> Any:
        """Apply a range."""
        try:
            answer = self._shard.feed(decode_range(parts))
        except (BatchError, ShardBroken) as error:
            raise _refusal(error) from error
        return idl().FeedAnswer(**dataclasses.asdict(answer))

    def positions(self) -> list[Any]:
        """Next offset of every partition."""
        return [
            idl().Position(topic_id=key.topic_id, partition=key.partition, next_offset=offset)
            for key, offset in self._shard.positions().items()
        ]

    def select(self, request: bytes) -> bytes:
        """JSON request, Arrow answer."""
        began = monotonic()
        try:
            answer = self._select(request)
        except Exception:
            self._count(began, False)
            raise
        self._count(began, True)
        return answer

    def _select(self, request: bytes) -> bytes:
        if not self._selects.acquire(timeout=SELECT_WAIT_S):
            raise idl().ShardError(message=f"shard {self._shard.id} is busy with {SELECTS_AT_ONCE} other questions")
        try:
            buckets = self._shard.select(SelectRequest.from_json(json.loads(request)))
            notes = self._notes()
            if notes:
                buckets = dataclasses.replace(buckets, notes=buckets.notes + notes, partial=True)
            return encode_buckets(buckets)
        except (SelectError, ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
            raise _refusal(error) from error
        finally:
            self._selects.release()

    def find(self, request: bytes) -> bytes:
        """JSON request, JSON answer {"found": [...]}."""
        try:
            found = self._find(json.loads(request))
        except (SelectError, ValueError, KeyError, TypeError) as error:
            raise _refusal(error) from error
        return json.dumps({"found": found}, ensure_ascii=False).encode()

    def _find(self, request: Mapping[str, Any]) -> list[Any]:
        match request["what"]:
            case "names":
                return self._shard.names()[:MAX_NAMES]
            case "label_values":
                return self._shard.label_values(request["label"], min(int(request["limit"]), MAX_NAMES))
            case "find":
                matchers = tuple(Matcher(*(str(part) for part in matcher)) for matcher in request["matchers"])
                return [series_to_json(s) for s in self._shard.find(matchers, min(int(request["limit"]), MAX_FOUND))]
            case "levels":
                return [list(level) for level in self._shard.levels()]
            case what:
                raise SelectError(f"unknown question {what!r}: ask for names, label_values, find or levels")

    def status(self) -> bytes:
        """JSON of `Shard.status`."""
        return json.dumps(self._shard.status()).encode()


def series_to_json(series: Series) -> list[Any]:
    """[fingerprint, name, labels, type, kind]."""
    return [series.fingerprint, series.name, dict(series.labels), int(series.type), int(series.kind)]


def _refusal(error: Exception) -> Any:
    text = str(error) if isinstance(error, SelectError | BatchError | ShardBroken) else f"malformed request: {error!r}"
    return idl().ShardError(message=text)
