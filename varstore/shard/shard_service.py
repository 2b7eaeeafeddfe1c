"""Thrift service of a shard: decodes and forwards requests, encodes answers."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import thriftpy2

import artimon.model
from artimon.compute.aggregate import NOT_PUSHED, Aggregate, AggregateRequest, NotPushed, encode_aggregate
from artimon.model.batch import BatchError
from artimon.model.cardinality import MAX_TOP
from artimon.model.feed_codec import decode_range
from artimon.model.select import Buckets, Matcher, SelectError, SelectRequest, Series, encode_buckets
from artimon.model.vshards import from_hex, to_hex
from bookkeeper.rpc.framed_server import is_caller_disconnected
from varstore.query.query_deadline import CallerDisconnected, DeadlinePassed
from varstore.shard.shard import Shard, ShardBroken
from varstore.store.active_exports import ActiveExports, ExportNotFoundError, TooManyExportsError
from varstore.store.capture import CaptureClosed
from varstore.store.feed_groups import Partition

MAX_CONCURRENT_SELECTS = 4
SELECT_QUEUE_TIMEOUT_S = 8.0
MAX_NAMES = 100_000
MAX_FOUND = 100_000
QUESTIONS = ("names", "label_values", "find", "matching_values", "metadata", "cardinality", "levels")
"""Requests of metadata."""

UNKNOWN_REQUEST = "unknown request"
"""Prefix of the refusal of a request that only a newer version knows."""

CompletenessNotes = Callable[[int | None], tuple[str, ...]]
"""Reasons why answers about these virtual shards (mask; None: all held) are not complete yet; empty: complete."""
Answer = TypeVar("Answer", Buckets, Aggregate)


@lru_cache(maxsize=1)
def idl() -> Any:
    """Load artimon/model/shard.thrift once: `.Shard` is the service, `.ShardError` and `.FeedAnswer` are types."""
    path = Path(artimon.model.__file__).with_name("shard.thrift")
    return thriftpy2.load(str(path), module_name="artimon_shard_thrift")


class ShardService:
    """Handler of the service Shard. Expected errors become a ShardError with a text for the caller.

    notes: returns the reasons why answers are not complete yet."""

    def __init__(self, shard: Shard, notes: CompletenessNotes = lambda _vshards: ()) -> None:
        self._shard, self._notes = shard, notes
        self._exports = ActiveExports(shard.ownership.export)
        self._selects = threading.BoundedSemaphore(MAX_CONCURRENT_SELECTS)
        self._counts_lock = threading.Lock()
        """Guards the counts below."""
        self._answered = self._refused = self._cancelled = 0
        self._total_s = 0.0
        self.active = 0
        """Number of queries in progress."""

    def query_counts(self) -> dict[str, int]:
        """Return counts of queries since the start: answered, total time in ms, refused, and of these cancelled because
        the caller was gone or its deadline passed."""
        self._exports.close_idle()
        with self._counts_lock:
            return {
                "selects": self._answered,
                "selects_ms": int(self._total_s * 1000),
                "refused": self._refused,
                "cancelled": self._cancelled,
            }

    def _count(self, began: float, answered: bool) -> None:
        with self._counts_lock:
            self._total_s += monotonic() - began
            self._answered += answered
            self._refused += not answered

    def feed(self, parts: Sequence[bytes]) -> Any:
        """Apply a range; see `Shard.feed`."""
        try:
            answer = self._shard.feed(decode_range(parts))
        except (BatchError, ShardBroken) as error:
            raise _shard_error(error) from error
        return idl().FeedAnswer(**dataclasses.asdict(answer))

    def groups(self) -> str:
        """Return `Shard.groups` as JSON."""
        return json.dumps(self._shard.groups())

    def rewind(self, topic_id: str, partition: int, offset: int) -> None:
        """Go back to `offset` of a truncated log; see `Shard.rewind`."""
        self._shard.rewind(Partition(topic_id, partition), offset)

    def export_begin(self, vshards: str) -> str:
        """Begin a snapshot of these virtual shards (hex mask); return its id and groups as JSON."""
        try:
            id_, export = self._exports.begin(from_hex(vshards))
        except (ValueError, TooManyExportsError) as error:
            raise idl().ShardError(message=str(error)) from error
        return json.dumps({"id": id_, "groups": [group.summary() for group in export.groups]})

    def export_next(self, id: str, part: int) -> bytes:
        """Return the next part, or the last one again; empty after the end."""
        try:
            return self._exports.part(id, part)
        except (ExportNotFoundError, CaptureClosed) as error:
            raise idl().ShardError(message=str(error)) from error

    def export_end(self, id: str) -> None:
        """Close a snapshot."""
        self._exports.end(id)

    def drop(self, vshards: str) -> str:
        """Drop virtual shards (hex mask); return those that were held."""
        try:
            return to_hex(self._shard.drop(from_hex(vshards)))
        except ValueError as error:
            raise idl().ShardError(message=str(error)) from error

    def select(self, request: bytes) -> bytes:
        """Answer a JSON request for buckets in Arrow."""
        return self._answer(lambda: self._select(request))

    def aggregate(self, request: bytes) -> bytes:
        """Answer a JSON request for a partial aggregate in Arrow."""
        return self._answer(lambda: self._aggregate(request))

    def _answer(self, answer: Callable[[], bytes]) -> bytes:
        """Run a query and count it; at most MAX_CONCURRENT_SELECTS run at a time."""
        began, answered = monotonic(), False
        if not self._selects.acquire(timeout=SELECT_QUEUE_TIMEOUT_S):
            self._count(began, False)
            raise idl().ShardError(
                message=f"shard {self._shard.id} is busy with {MAX_CONCURRENT_SELECTS} queries: try again"
            )
        with self._counts_lock:
            self.active += 1
        try:
            found = answer()
            answered = True
            return found
        except (CallerDisconnected, DeadlinePassed) as gone:
            with self._counts_lock:
                self._cancelled += 1
            raise _shard_error(gone) from gone
        except (SelectError, ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
            raise _shard_error(error) from error
        except NotPushed as reason:
            answered = True
            raise idl().ShardError(message=f"{NOT_PUSHED}: {reason}") from reason
        finally:
            with self._counts_lock:
                self.active -= 1
            self._selects.release()
            self._count(began, answered)

    def _select(self, request: bytes) -> bytes:
        wanted = json.loads(request)
        asked = SelectRequest.from_json(wanted)
        found = self._with_notes(self._shard.select(asked, is_caller_disconnected), asked.vshards)
        return encode_buckets(found, small=wanted.get("small") is True)

    def _aggregate(self, request: bytes) -> bytes:
        asked = AggregateRequest.from_json(json.loads(request))
        return encode_aggregate(self._with_notes(self._shard.aggregate(asked, is_caller_disconnected), asked.vshards))

    def _with_notes(self, found: Answer, vshards: int | None) -> Answer:
        """Mark an answer as partial and add the reasons if these virtual shards are not complete."""
        notes = self._notes(vshards)
        return dataclasses.replace(found, notes=found.notes + notes, partial=True) if notes else found

    def find(self, request: bytes) -> bytes:
        """Answer a JSON request for metadata with JSON {"found": [...]}."""
        try:
            found = self._find(json.loads(request))
        except (SelectError, ValueError, KeyError, TypeError) as error:
            raise _shard_error(error) from error
        return json.dumps({"found": found}, ensure_ascii=False).encode()

    def _find(self, request: Mapping[str, Any]) -> list[Any]:
        match request["what"]:
            case "names":
                return self._shard.names()[:MAX_NAMES]
            case "label_values":
                return self._shard.label_values(request["label"], min(int(request["limit"]), MAX_NAMES))
            case "find":
                limit = min(int(request["limit"]), MAX_FOUND)
                return [series_to_json(s) for s in self._shard.find(_matchers(request), limit)]
            case "matching_values":
                limit = min(int(request["limit"]), MAX_NAMES)
                return self._shard.matching_values(request["label"], _matchers(request), limit)
            case "metadata":
                names = request["names"]
                wanted = None if names is None else [str(name) for name in names[:MAX_NAMES]]
                return [[name, *told] for name, told in self._shard.metadata(wanted).items()]
            case "cardinality":
                top = min(int(request["top"]), MAX_TOP)
                return [self._shard.cardinality(top, from_hex(request["vshards"])).to_json()]
            case "levels":
                return [list(level) for level in self._shard.levels()]
            case what:
                raise SelectError(f"{UNKNOWN_REQUEST} {what!r}: use one of {', '.join(QUESTIONS)}")

    def status(self) -> bytes:
        """Return `Shard.status`, with `Shard.polls` as `polls`, as JSON."""
        return json.dumps({**self._shard.status(), "polls": self._shard.polls()}).encode()


def _matchers(request: Mapping[str, Any]) -> tuple[Matcher, ...]:
    return tuple(Matcher(*(str(part) for part in matcher)) for matcher in request["matchers"])


def series_to_json(series: Series) -> list[Any]:
    """Return [fingerprint, name, labels, type, kind]."""
    return [series.fingerprint, series.name, dict(series.labels), int(series.type), int(series.kind)]


def _shard_error(error: Exception) -> Any:
    text = str(error) if isinstance(error, SelectError | BatchError | ShardBroken) else f"malformed request: {error!r}"
    return idl().ShardError(message=text)
