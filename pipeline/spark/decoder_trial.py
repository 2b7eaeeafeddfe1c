"""Trial of suspicious messages: a subprocess decodes them first. A message that kills it costs only that process.

`python -c` starts the process (`main` below). It reads requests from its standard input, each a length (4 bytes, big
endian) and a message, and answers each with a length (2 bytes) and the reason why the message cannot be stored.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np
import xxhash

from artimon.model.batch import BatchError, BatchHeader, BatchId, Samples
from artimon.model.batch_codec import encode_samples
from artimon.model.sample_columns import samples_from_body
from pipeline.spark import message_checks as messages
from pipeline.spark import raw_file as rows

ATTEMPTS = 2
"""Processes that a message must kill before it is refused; the last of them has decoded nothing else."""
MAX_ADDRESS_BYTES = 3 * 1024**3
"""Address space of the process. A decoded batch has at most 8 MiB; libraries reserve the rest."""
ANSWER_TIMEOUT_S = 60.0
"""Timeout of one message. Decoding takes milliseconds, so a process that takes this long hangs."""
START_TIMEOUT_S = 120.0
_REQUEST, _ANSWER = struct.Struct(">I"), struct.Struct(">H")
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from pipeline.spark.decoder_trial import main; main()"
)
_MAX_REASON = 300


class TrialError(OSError):
    """Not even a good message can be decoded in a new process: nothing is known of the suspect."""


def digest(value: bytes) -> str:
    """Name of a message among suspects: xxh3-128 of its bytes, in hex."""
    return xxhash.xxh3_128_hexdigest(value)


class TrialDecoder:
    """Decoder that has suspects tried first. Used by one thread; a context manager, which ends the process.

    `poison`: digests of the messages that it refused."""

    def __init__(self, suspects: Collection[str] = (), careful: bool = False) -> None:
        """`careful`: every message is suspect."""
        self._suspects, self._try_all = suspects, careful
        self._process = DecoderProcess()
        self.poison: list[str] = []

    def __enter__(self) -> TrialDecoder:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.end()

    def decode(self, header: BatchHeader, value: bytes) -> Any:
        """Decode like `messages.decode`. Raises BatchError, also for a message that kills its decoder; TrialError."""
        if self._try_all or (self._suspects and digest(value) in self._suspects):
            reason = self._process.rejection_reason(value)
            if reason:
                self.poison.append(digest(value))
                raise BatchError(reason)
        return messages.decode(header, value)


class DecoderProcess:
    """One process at a time, started on demand. Used by one thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def rejection_reason(self, value: bytes) -> str:
        """Return the reason why a message cannot be stored, "" if it can be decoded and written. Raises TrialError."""
        for _ in range(ATTEMPTS):
            answer = self._request(value)
            if answer is not None:
                return answer
            death = self.end()
        if self._request(_good_message()) != "":
            raise TrialError(f"a process that decodes a good message dies as well ({self.end()}): is memory short?")
        return f"kills the process that decodes it ({death}), tried {ATTEMPTS} times"

    def end(self, waited_s: float | None = None) -> str:
        """End the process, if there is one; return how it ended. `waited_s`: time its answer had, by default
        ANSWER_S."""
        process, self._process = self._process, None
        if process is None:
            return ""
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        try:
            code = process.wait(1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"no answer within {waited_s or ANSWER_TIMEOUT_S:.0f} s"
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def _request(self, value: bytes) -> str | None:
        """Return the answer of the process; None if it died."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(_REQUEST.pack(len(value)) + value)
            process.stdin.flush()
        except OSError:
            return None
        return _answer(process.stdout, ANSWER_TIMEOUT_S)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _START, json.dumps(sys.path)]
        self._process = process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        if _answer(process.stdout, START_TIMEOUT_S) is None:
            raise TrialError(f"the process that tries messages does not start ({self.end(START_TIMEOUT_S)})")
        return process


def _answer(stream: Any, timeout_s: float) -> str | None:
    """Read one answer; None at the end of the stream or after the timeout."""
    ready, _, _ = select.select([stream], [], [], timeout_s)
    head = stream.read(_ANSWER.size) if ready else b""
    if len(head) < _ANSWER.size:
        return None
    (size,) = _ANSWER.unpack(head)
    return str(stream.read(size), "utf-8", "replace")


def _good_message() -> bytes:
    """Return a batch of one sample."""
    return encode_samples(BatchId("trial", 0, 0, 0), "trial", bytes(16), 0, 0, "", Samples.of([(1, 0, 0, 1)])).data


def main() -> None:
    """Run the process: decode messages until the end of the input. Exhausted memory ends it."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_BYTES, MAX_ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # the kernel should take this process, not the worker
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keeps what a library prints apart from the answers
    _reply(answers, "")
    while len(head := requests.read(_REQUEST.size)) == _REQUEST.size:
        _reply(answers, check_storable(requests.read(_REQUEST.unpack(head)[0])))


def _reply(answers: BinaryIO, reason: str) -> None:
    text = reason.encode()[:_MAX_REASON]
    answers.write(_ANSWER.pack(len(text)) + text)
    answers.flush()


def check_storable(value: bytes) -> str:
    """Return the reason why a message cannot be stored, "" if it can. Does the work of both queries without their
    output. Raises MemoryError."""
    try:
        header = messages.parse_header(value)
        columns = messages.decode(header, value)
    except BatchError as error:
        return str(error)
    try:
        np.sort(samples_from_body(columns).fingerprint)
        if len(columns):
            rows.encode_file([rows.SourceBatch(0, max(0, header.poll_ms), columns)])
    except MemoryError:
        raise
    except Exception as error:
        return f"this program failed to store it: {type(error).__name__}: {error}"
    return ""
