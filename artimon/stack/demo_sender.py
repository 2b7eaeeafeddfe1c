"""Sends the samples of a demo fleet to an agent by Prometheus remote write."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

import cramjam
import numpy as np

from artimon.stack.demo_fleet import DAY_MS, METRICS, MINUTE_MS, DemoFleet, DemoSamples, Ints, Times
from artimon.stack.demo_services import Floats
from artimon.stack.stack_errors import StackError
from sources.receive.protobuf_messages import FAMILY_TYPES, MESSAGES

PATH = "/api/v1/write/demo"
SENDERS = 4
"""Groups of hosts, each a sender, so that the shards share them."""
HEADERS = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
TIMEOUT_S = 60.0
RETRIES, RETRY_S = 60, 2.0
"""Attempts while the agent cannot keep samples, with a full log for example, and seconds between them."""
Progress = Callable[[float, int], None]
"""Called with the share that is done and the number of samples sent."""
_VALUE_AT, _TIME_AT, _TIME_BYTES = -15, -6, 6
"""Places of value and time from the end of a series: remote write ends with a sample of 18 bytes."""


class DemoError(StackError):
    """Error: the agent does not take the samples."""


class RequestTemplate:
    """Requests with one sample of each series. Only values and times differ, so their places are filled at once."""

    def __init__(self, series: Sequence[tuple[str, dict[str, str]]], time_ms: int) -> None:
        blocks = [_block(name, labels, time_ms) for name, labels in series]
        ends = np.cumsum([len(block) for block in blocks])
        self._bytes = np.frombuffer(b"".join(blocks), np.uint8)
        self._starts, self._ends = ends - [len(block) for block in blocks], ends
        self._value_at = (ends + _VALUE_AT)[:, None] + np.arange(8)
        self._time_at = (ends + _TIME_AT)[:, None] + np.arange(_TIME_BYTES)

    def fill(self, values: Floats, times_ms: Times, here: Sequence[int] | None) -> bytes:
        """Return a request that is not compressed. `here`: numbers of the series with a sample, None for all."""
        filled = self._bytes.copy()
        filled[self._value_at] = values.astype("<f8").view(np.uint8).reshape(-1, 8)
        varint = (times_ms[:, None] >> (7 * np.arange(_TIME_BYTES))) & 0x7F
        varint[:, :-1] |= 0x80
        filled[self._time_at] = varint
        if here is None:
            return filled.tobytes()
        data = memoryview(filled.tobytes())
        return b"".join(data[self._starts[i] : self._ends[i]] for i in here)


def _block(name: str, labels: dict[str, str], time_ms: int) -> bytes:
    """Return the bytes of one series in a request, with a value that is not 0."""
    pairs = [("__name__", name), *sorted(labels.items())]
    told = [MESSAGES["Label"](name=label, value=value).SerializeToString() for label, value in pairs]
    series = MESSAGES["Series1"](labels=told, samples=[MESSAGES["Sample"](value=1.0, timestamp=time_ms)])
    return bytes(MESSAGES["Request1"](series=[series.SerializeToString()]).SerializeToString())


def metadata_request() -> bytes:
    """Return a request with kinds, units and descriptions of all names."""
    told = [
        MESSAGES["Metadata1"](type=FAMILY_TYPES.index(one.kind), name=name, help=one.help, unit=one.unit)
        for name, one in METRICS.items()
    ]
    return bytes(MESSAGES["Request1"](metadata=[one.SerializeToString() for one in told]).SerializeToString())


class _HostGroup:
    """Some of the hosts, whose series are one sender: a sender is a source, which one lane and shard has."""

    def __init__(self, number: int, rows: Ints, fleet: DemoFleet) -> None:
        self.path, self.rows = f"{PATH}-{number}", rows
        series = [fleet.series[row] for row in rows.tolist()]
        self.template, self.phases_ms = RequestTemplate(series, fleet.end_ms), fleet.phases_ms[rows]

    def request(self, chunk: DemoSamples, at: int) -> tuple[bytes, int]:
        """Return the request with the samples at a time, and their number."""
        present = chunk.present[self.rows, at]
        here = None if present.all() else np.flatnonzero(present).tolist()
        # each series is read at its phase in the minute that ends at this time
        times_ms = int(chunk.times_ms[at]) - MINUTE_MS + self.phases_ms
        return self.template.fill(chunk.values[self.rows, at], times_ms, here), int(present.sum())


class DemoSender:
    """One connection to the receiver of an agent. Raises DemoError."""

    def __init__(self, address: str, fleet: DemoFleet) -> None:
        """`address`: URL of the receiver."""
        self.address, self.samples, self._fleet = address, 0, fleet
        self._connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=TIMEOUT_S)
        self._groups = [_HostGroup(n, rows, fleet) for n, rows in enumerate(fleet.groups(SENDERS), 1)]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def load(self, report: Progress) -> None:
        """Send the samples of the past that are not too old."""
        for group in self._groups:
            self._post(group.path, metadata_request())
        span = self._fleet.sent_days * DAY_MS
        for chunk in self._fleet.samples():
            self.send(chunk)
            report(1 - (self._fleet.end_ms - int(chunk.times_ms[-1])) / span, self.samples)

    def send(self, chunk: DemoSamples) -> None:
        """Send the samples of a chunk, in the order of time."""
        for at in range(len(chunk.times_ms)):
            for group in self._groups:
                body, samples = group.request(chunk, at)
                self._post(group.path, body)
                self.samples += samples

    def _post(self, path: str, body: bytes) -> None:
        """Send one request, again while the agent cannot take it."""
        packed, text = bytes(cramjam.snappy.compress_raw(body)), ""
        for _ in range(RETRIES):
            status, text = self._ask(path, packed)
            if status in (200, 204):
                return
            if status != HTTPStatus.SERVICE_UNAVAILABLE:
                raise DemoError(f"{self.address} answers {status}: {text}")
            time.sleep(RETRY_S)
        raise DemoError(f"{self.address} takes nothing for {RETRIES * RETRY_S:.0f} s: {text}")

    def _ask(self, path: str, packed: bytes) -> tuple[int, str]:
        try:
            self._connection.request("POST", path, packed, HEADERS)
            answer = self._connection.getresponse()
            return answer.status, answer.read(2_000).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as problem:
            self._connection.close()
            raise DemoError(f"no agent receives at {self.address}: {problem}") from problem
