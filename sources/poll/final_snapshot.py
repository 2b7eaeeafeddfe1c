"""Decoder of final snapshots: verifies the bytes and returns a reading like that of a poll."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from artimon.model.clock import Clock
from bookkeeper.export.final_file import decode_payload
from bookkeeper.rpc.poll_service import idl
from bookkeeper.rpc.thrift_messages import FrameError, MessageHead, decode_struct
from bookkeeper.runtime.process_settings import SettingsError, validate_name
from sources.base.source_errors import FileRefusedError, PollError
from sources.dropin.line_start_times import MAX_AHEAD_MS
from sources.poll.poll_codec import check_columns
from sources.state.past_processes import MAX_AGE_MS
from sources.state.source_reading import Reading


@dataclass(frozen=True, slots=True)
class FinalSnapshot:
    """Last values of a process. `memo`: left with it by its last poller, None if it was never polled."""

    reading: Reading
    address: str
    memo: bytes | None


def decode_final(data: bytes, owner: int, max_series: int, clock: Clock) -> FinalSnapshot:
    """Decode the bytes of a file of the user `owner`. Raises FileRefusedError with the reason."""
    try:
        final = decode_struct(MessageHead(decode_payload(data), "final", 0, 0, 0), idl().Final())
        answer = check_columns(final.columns, None, max_series)
        reading = answer.reading
        for name in ("context", "instance"):
            validate_name(name, getattr(reading, name))
        address = str(ipaddress.ip_address(final.address))
        if not 0 < reading.birth_ms <= reading.time_ms:
            raise ValueError(f"born at {reading.birth_ms} ms, ended at {reading.time_ms} ms")
    except (FrameError, PollError, SettingsError, TypeError, ValueError, AttributeError) as error:
        raise FileRefusedError("malformed", f"{type(error).__name__}: {error}") from error
    if owner not in (0, reading.uid):
        raise FileRefusedError("foreign owner", f"written by user {owner}, names user {reading.uid}")
    age_ms = clock.now_ms() - reading.time_ms
    if age_ms > MAX_AGE_MS:
        raise FileRefusedError(
            "too old", f"{age_ms // 86_400_000} days old: at most {MAX_AGE_MS // 86_400_000} days are accepted"
        )
    if -age_ms > MAX_AHEAD_MS:
        raise FileRefusedError("future", f"{-age_ms // 1000} s ahead of this host's clock")
    return FinalSnapshot(reading, address, (answer.memo or b"") if final.columns.poller else None)
