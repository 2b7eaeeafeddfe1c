"""Samples of a server with Prometheus' remote read, one window of time after another."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from google.protobuf.message import DecodeError

from artimon.model.import_chunk import ImportChunk
from artimon.model.values import STALE_BITS, ValueType
from artimon.runtime.remote_read_messages import MESSAGES
from artimon.runtime.snappy_block import SnappyError, compress_block, decompress_block
from sources.base.source_errors import FileRefusedError
from sources.history.import_builder import REFUSED, ImportBuilder, ParsedColumns, kind_by_name

OPERATORS = ("=", "!=", "=~", "!~")
"""Operators of matchers by their number in a request."""
TIMEOUT_S = 120.0
MAX_ANSWER_BYTES = 64 << 20
"""Limit of the samples of one window: about 4 million."""
HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Read-Version": "0.1.0",
    "User-Agent": "artimon",
}


@dataclass(frozen=True, slots=True)
class RemoteRead:
    """Samples in (after_ms, until_ms] of the series that match, as (label, operator, value). `token`: sent as bearer
    token, "" for none."""

    url: str
    matchers: tuple[tuple[str, str, str], ...]
    after_ms: int
    until_ms: int
    window_ms: int
    token: str = ""

    def __str__(self) -> str:
        return self.url

    def read(self, builder: ImportBuilder) -> Iterator[ImportChunk]:
        """Yield the samples of each window. Raises FileRefusedError, OSError."""
        for after_ms in range(self.after_ms, self.until_ms, self.window_ms):
            parsed = self._parse(self._fetch(after_ms, min(after_ms + self.window_ms, self.until_ms)), builder)
            if len(parsed.code):
                yield builder.chunk(parsed)
            if builder.is_full:
                builder.forget()

    def _fetch(self, after_ms: int, until_ms: int) -> Any:
        query = MESSAGES["ReadQuery"](start_timestamp_ms=after_ms + 1, end_timestamp_ms=until_ms)
        for label, operator, value in self.matchers:
            query.matchers.add(type=OPERATORS.index(operator), name=label, value=value)
        message = MESSAGES["ReadRequest"](queries=[query.SerializeToString()], accepted_response_types=[0])
        headers = {**HEADERS, **({"Authorization": f"Bearer {self.token}"} if self.token else {})}
        body = compress_block(message.SerializeToString())
        try:
            opener = urllib.request.build_opener(_NoRedirects)
            request = urllib.request.Request(self.url, body, headers)  # noqa: S310 (see check_url)
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                data = answer.read(MAX_ANSWER_BYTES + 1)
            return MESSAGES["ReadResponse"].FromString(decompress_block(data, MAX_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            told = error.read(200).decode("utf-8", "replace").strip()
            raise FileRefusedError("answer", f"{self.url}: HTTP {error.code}: {told or error.reason}") from error
        except SnappyError as error:
            text = f"{self.url}: {error}; for less at once take a shorter --window or a narrower --select"
            raise FileRefusedError("answer", text) from error
        except DecodeError as error:
            raise FileRefusedError("answer", f"{self.url}: the answer is not one of remote read: {error}") from error

    def _parse(self, response: Any, builder: ImportBuilder) -> ParsedColumns:
        codes, times, values = [], [], []
        for series in (one for result in response.results for one in result.timeseries):
            labels = {label.name: label.value for label in series.labels}
            name = labels.get("__name__", "")
            code = builder.series(name, labels, 0, kind_by_name(name))
            if code == REFUSED:
                builder.rejects.counts["bad series"] += len(series.samples)
                continue
            codes.append(np.full(len(series.samples), code, np.int64))
            times.append(np.array([sample.timestamp for sample in series.samples], np.int64))
            values.append(np.array([sample.value for sample in series.samples], np.float64))
        cell = _joined(values, np.float64).view(np.int64)
        ended = cell == STALE_BITS
        type_ = np.where(ended, np.uint8(ValueType.ENDED), np.uint8(ValueType.DOUBLE))
        code = _joined(codes, np.int64)
        return ParsedColumns(code, _joined(times, np.int64), type_, np.where(ended, 0, cell), np.zeros_like(code))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: it could name a server that the user did not."""

    def redirect_request(self, *_: Any) -> None:
        return None


def check_url(url: str) -> str:
    """Return the address of remote read. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.username is not None:
        raise ValueError(f"{url!r} is not an address of remote read: http://HOST:PORT/api/v1/read, a token by a file")
    return url


def _joined(parts: Sequence[Any], type_: Any) -> Any:
    return np.concatenate(parts) if parts else np.zeros(0, type_)
