"""Host key: the name below which all processes of a host register, so that the agent on it watches one node.

A process takes ARTIMON_HOST, else what the agent of this machine left in the drop-in folder (containers that mount it
have addresses of their own), else its advertised address.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile

HOSTS = "/artimon/hosts"
KEY_FILE = ".host"
"""File with the host key inside the folder of drop-in files; the agent writes it."""
MAX_KEY_LENGTH = 253
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._:-]")


def fit_host_key(text: str) -> str:
    """Return `text` with the characters replaced by _ that a host key cannot have; "" if nothing is left."""
    key = _FORBIDDEN.sub("_", text.strip())[:MAX_KEY_LENGTH]
    return key if key.strip(".") else ""


def host_key(given: str, dropin: str, address: str) -> str:
    """Return the host key of a process: `given`, else that of the drop-in folder, else its address."""
    return fit_host_key(given) or read_host_key(dropin) or fit_host_key(address)


def read_host_key(dropin: str) -> str:
    """Return the host key that an agent left in the drop-in folder; "" if there is none, or if the file belongs to
    neither the owner of the folder nor root. Does not follow links."""
    try:
        owner = os.stat(dropin).st_uid
        descriptor = os.open(os.path.join(dropin, KEY_FILE), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if os.fstat(descriptor).st_uid not in (owner, 0):
                return ""
            return fit_host_key(file.read(MAX_KEY_LENGTH + 2).decode("ascii", "replace"))
    except (OSError, ValueError):
        return ""


def write_host_key(dropin: str, key: str) -> None:
    """Leave the host key in the drop-in folder, if the folder exists and the key is not there yet. Raises OSError."""
    if not os.path.isdir(dropin) or read_host_key(dropin) == key:
        return
    descriptor, temporary = tempfile.mkstemp(prefix=KEY_FILE, dir=dropin)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(key.encode())
        os.chmod(temporary, 0o644)
        os.replace(temporary, os.path.join(dropin, KEY_FILE))
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
