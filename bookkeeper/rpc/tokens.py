"""Mutual proof of a shared secret without sending it (hello.thrift), and the file of such tokens."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import stat
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from time import monotonic
from typing import Any

import thriftpy2
from thriftpy2.thrift import TApplicationException, TMessageType

from bookkeeper.rpc.thrift_messages import (
    HEADER,
    FrameError,
    decode_reply,
    decode_struct,
    encode_call,
    encode_message,
    parse_message,
)
from bookkeeper.rpc.tls import REFRESH_PERIOD_S, FileStamp, SecurityConfigError, UnauthorizedError, file_stamp

log = logging.getLogger("bookkeeper.secure")
NONCE_BYTES, LEAST_BYTES, MOST_TOKENS, MOST_BYTES = 32, 16, 100, 64 * 1024
HELLO_METHODS = ("hello", "prove")
MAX_FRAME_BYTES = 512
"""Maximum size of a hello message in bytes."""
_CLIENT, _SERVER = b"artimon client", b"artimon server"
Exchange = Callable[[bytes], bytes]
"""Sends a frame and returns the answer frame without its length."""


def idl() -> Any:
    """Load hello.thrift as a module of thriftpy2."""
    return thriftpy2.load(str(Path(__file__).parents[1] / "hello.thrift"), module_name="bookkeeper_hello_thrift")


class Tokens:
    """Tokens of a file, one a line, # for comments. Clients use the first; servers accept any, so that a token can be
    replaced without refusing a client meanwhile. Thread-safe; the file is read again when it changes.

    `trust` grows with every change: then older connections must reconnect, as their token may have been removed."""

    def __init__(self, path: str) -> None:
        """Raises SecurityConfigError."""
        self._path = path
        self._lock = threading.Lock()
        self._refreshed_at = monotonic()
        self.version = 0
        self._stamp, self._tokens = self._read()

    def all(self) -> tuple[bytes, ...]:
        """Return all current tokens."""
        with self._lock:
            self._refresh()
            return self._tokens

    def current(self) -> int:
        """Re-read the file if it changed; return the version of the tokens."""
        with self._lock:
            self._refresh()
            return self.version

    def _refresh(self) -> None:
        if monotonic() - self._refreshed_at < REFRESH_PERIOD_S:
            return
        self._refreshed_at = monotonic()
        try:
            if file_stamp(self._path) == self._stamp:
                return
            found = self._read()
        except (OSError, SecurityConfigError) as error:
            log.warning("tokens not reloaded, the old ones stay in use: %s", error)
            return
        if found[1] != self._tokens:
            self.version += 1
        self._stamp, self._tokens = found

    def _read(self) -> tuple[FileStamp, tuple[bytes, ...]]:
        try:
            stamp, mode = file_stamp(self._path), os.stat(self._path).st_mode
            if mode & (stat.S_IROTH | stat.S_IWOTH):
                raise SecurityConfigError(f"{self._path}: others may read or write it: chmod 640")
            with open(self._path, "rb") as file:
                lines = [line.strip() for line in file.read(MOST_BYTES).splitlines()]
        except OSError as error:
            raise SecurityConfigError(f"tokens: {error}") from None
        tokens = tuple(line for line in lines if line and not line.startswith(b"#"))[:MOST_TOKENS]
        if not tokens or any(len(token) < LEAST_BYTES for token in tokens):
            raise SecurityConfigError(f"{self._path}: write tokens of at least {LEAST_BYTES} characters, one a line")
        return stamp, tokens


def proof_of(token: bytes, side: bytes, client: bytes, server: bytes) -> bytes:
    """Proof that `side` knows the token, valid for this connection only."""
    return hmac.new(token, side + client + server, hashlib.sha256).digest()


def authenticate_client(tokens: Tokens, exchange: Exchange) -> None:
    """Run the client side of a hello. Raises UnauthorizedError, OSError, FramedError."""
    steps = client_hello(tokens)
    frame = next(steps)
    try:
        while True:
            frame = steps.send(exchange(frame))
    except StopIteration:
        pass


def client_hello(tokens: Tokens) -> Generator[bytes, bytes, None]:
    """Client side of a hello without a socket: yields frames to send, and receives the answer frames without their
    length. Raises UnauthorizedError, FramedError."""
    hello, nonce = idl().Hello, secrets.token_bytes(NONCE_BYTES)
    token = tokens.all()[0]
    try:
        challenge = decode_reply(hello, "hello", (yield encode_call(hello, "hello", (nonce,), 1)), 1)
        proof = proof_of(token, _CLIENT, nonce, bytes(challenge))
        answer = decode_reply(hello, "prove", (yield encode_call(hello, "prove", (proof,), 2)), 2)
    except TApplicationException as error:
        raise UnauthorizedError(f"the server does not use tokens ({error}): set ARTIMON_TOKENS there too") from None
    except idl().Refused as error:
        raise UnauthorizedError(f"the server refuses our token: {error.why}") from None
    if not hmac.compare_digest(bytes(answer), proof_of(token, _SERVER, nonce, bytes(challenge))):
        raise UnauthorizedError("the server did not prove our token: it is not one of ours")


class ServerHello:
    """Server side of a hello, one for each connection: `answer` each of its first frames until `proven`."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._client, self._server = b"", secrets.token_bytes(NONCE_BYTES)
        self.authenticated = False

    def answer(self, frame: bytes) -> bytes:
        """Return the reply as a frame. Raises FrameError, and UnauthorizedError, whose second argument is the reply to
        send before the connection is closed."""
        message = parse_message(frame)
        if message.kind != TMessageType.CALL or message.method not in HELLO_METHODS:
            text = "this server requires a token: set ARTIMON_TOKENS to the file of tokens"
            error = TApplicationException(TApplicationException.INTERNAL_ERROR, text)
            reply = encode_message(message.method, TMessageType.EXCEPTION, message.seqid, error)
            raise UnauthorizedError("a caller without a token", reply)
        args = decode_struct(message, getattr(idl().Hello, message.method + "_args")())
        result = getattr(idl().Hello, message.method + "_result")()
        refused = ""
        if message.method == "hello":
            self._client, result.success = _bytes(args.nonce), self._server
        elif token := self._token(_bytes(args.proof)):
            self.authenticated, result.success = True, proof_of(token, _SERVER, self._client, self._server)
        else:
            refused, result.refused = "a caller with a wrong token", idl().Refused("this server does not have it")
        reply = encode_message(message.method, TMessageType.REPLY, message.seqid, result)
        if refused:
            raise UnauthorizedError(refused, reply)
        return reply

    def _token(self, proof: bytes) -> bytes:
        """Return the proven token, or b"". Compares every token, each in constant time."""
        found = b""
        for token in self._tokens.all():
            good = hmac.compare_digest(proof, proof_of(token, _CLIENT, self._client, self._server))
            found = token if good and len(self._client) == NONCE_BYTES else found
        return found


def _bytes(value: Any) -> bytes:
    """Convert a binary field to bytes; thriftpy2 decodes it to str if the bytes are valid UTF-8."""
    if value is None:
        raise FrameError("a hello without its nonce or proof")
    return value.encode() if isinstance(value, str) else bytes(value)


def frame_size(header: bytes) -> int:
    """Size of a hello frame in bytes. Raises FrameError."""
    size = int(HEADER.unpack(header)[0])
    if size > MAX_FRAME_BYTES:
        raise FrameError(
            f"a first frame of {size} bytes, at most {MAX_FRAME_BYTES} are allowed before the token is proven"
        )
    return size
