"""Final snapshot: a file with the last values of a process, for the agent of the host if no agent polled them.

docs/formats/final.md describes the format and the permissions.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import zlib
from typing import Any

from thriftpy2.protocol.binary import TBinaryProtocol
from thriftpy2.transport import TMemoryBuffer

from bookkeeper.rpc.thrift_messages import FrameError
from bookkeeper.runtime.process_settings import FINAL_FOLDER

SUFFIX, SCRATCH = ".final", ".tmp"
MAGIC = b"ARTFIN01"
HEADER = struct.Struct("<8sII")
"""Magic, length of the payload, CRC-32 of the payload."""
MAX_BYTES = 16 << 20
"""Maximum size of one file in bytes, the same as of a poll."""
MAX_FILES, MAX_FILES_OF_USER = 1_000, 250
MAX_TOTAL, MAX_TOTAL_OF_USER = 256 << 20, 64 << 20
"""Maximum bytes in the folder: a program that restarts in a loop while the agent is down cannot fill the disk."""
MIN_FREE_FRACTION = 10
"""Keep 1/10 of the file system free."""


class FinalError(RuntimeError):
    """Final snapshot that cannot be written. The text says where and why, and what to do."""


def encode_final(final: Any) -> bytes:
    """Encode a file: header and struct `FinishedName` of bookkeeper.thrift."""
    buffer = TMemoryBuffer()
    final.write(TBinaryProtocol(buffer))
    payload = bytes(buffer.getvalue())
    return HEADER.pack(MAGIC, len(payload), zlib.crc32(payload)) + payload


def decode_payload(data: bytes) -> bytes:
    """Return the encoded struct in the bytes of a file. FrameError if they are incomplete or damaged."""
    if len(data) < HEADER.size:
        raise FrameError(f"{len(data)} bytes are less than a header of {HEADER.size}")
    magic, size, crc = HEADER.unpack_from(data)
    payload = data[HEADER.size :]
    if magic != MAGIC:
        raise FrameError(f"begins with {magic!r} instead of {MAGIC!r}")
    if size != len(payload):
        raise FrameError(f"payload of {len(payload)} bytes instead of {size} as the header says")
    if crc != zlib.crc32(payload):
        raise FrameError("checksum mismatch")
    return payload


def write_final_snapshot(dropin: str, uuid: bytes, data: bytes) -> None:
    """Put a file into the folder, by rename. FinalError: no file was written."""
    folder = os.path.join(dropin, FINAL_FOLDER)
    if len(data) > MAX_BYTES:
        raise FinalError(f"{folder}: a final snapshot of {len(data):,} bytes, at most {MAX_BYTES:,} are allowed")
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _refuse_folder(folder, os.fstat(descriptor))
            _refuse_excess(folder, descriptor, len(data))
            _write(descriptor, uuid.hex(), data)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise FinalError(f"{folder}: {error.strerror or error}: the values since the last poll are lost") from error


def _refuse_folder(folder: str, found: os.stat_result) -> None:
    """Refuse a folder that others can write without the sticky bit: they could replace files of this process."""
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
        raise FinalError(f"{folder}: others can replace files there: run chmod +t")


def _refuse_excess(folder: str, descriptor: int, size: int) -> None:
    files = total = own_files = own_total = 0
    with os.scandir(descriptor) as entries:
        for entry in entries:
            found = entry.stat(follow_symlinks=False)
            files, total = files + 1, total + found.st_size
            if found.st_uid == os.geteuid():
                own_files, own_total = own_files + 1, own_total + found.st_size
            if files >= MAX_FILES or own_files >= MAX_FILES_OF_USER:
                raise FinalError(f"{folder}: too many files ({files:,}, {own_files:,} of this user): start the agent")
    if total + size > MAX_TOTAL or own_total + size > MAX_TOTAL_OF_USER:
        raise FinalError(f"{folder}: too many bytes ({total:,}, {own_total:,} of this user): start the agent")
    disk = os.fstatvfs(descriptor)
    if disk.f_bavail * disk.f_frsize - size < disk.f_blocks * disk.f_frsize // MIN_FREE_FRACTION:
        raise FinalError(f"{folder}: less than a tenth of its file system would stay free: delete files")


def _write(descriptor: int, name: str, data: bytes) -> None:
    scratch = f".{name}.{os.getpid()}{SCRATCH}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(scratch, flags, 0o600, dir_fd=descriptor)
    try:
        with open(file, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fchmod(file, 0o644)  # for an agent that runs as another user
            os.fsync(file)
        os.rename(scratch, name + SUFFIX, src_dir_fd=descriptor, dst_dir_fd=descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch, dir_fd=descriptor)
        raise
