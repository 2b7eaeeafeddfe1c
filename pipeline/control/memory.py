"""Persistent state of an agent's control plane: with it the agent starts and continues without ZooKeeper.

One JSON file with a digest, replaced as a whole: new file written and fsynced, renamed, the folder fsynced. A damaged
one is kept aside, and the agent begins with the values of its command line.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.control import decide
from pipeline.control.commands import Book
from pipeline.control.decide import State
from pipeline.wal.files import SYSTEM_FILES, ensure_folder

log = logging.getLogger(__name__)
NAME = "plane.json"


@dataclass(frozen=True, slots=True)
class Memory:
    """State that outlives the process. `groups`: last known members of each group."""

    state: State = field(default_factory=State)
    book: Book = field(default_factory=Book)
    groups: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)


class MemoryFile:
    """The file in `folder`. Not thread-safe: its owner is one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / NAME
        self._last = ""
        self.damaged = ""

    def load(self) -> Memory:
        """Return the last saved state; an empty one if there is none or it is damaged."""
        try:
            return _parse(self._path.read_text())
        except FileNotFoundError:
            return Memory()
        except (ValueError, KeyError, TypeError) as error:
            aside = self._path.with_suffix(".damaged")
            self._path.replace(aside)
            self.damaged = f"{self._path} was damaged ({error!r}) and is kept as {aside.name}: configuration unknown"
            log.error("%s", self.damaged)
            return Memory()

    def save(self, memory: Memory) -> None:
        """Save the state; durable when this returns. Raises OSError; then the old file remains."""
        text = _text(memory)
        if text == self._last:
            return
        ensure_folder(SYSTEM_FILES, self._folder)
        fresh = self._path.with_suffix(".new")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        SYSTEM_FILES.fsync_folder(self._folder)
        self._last = text


def _text(memory: Memory) -> str:
    content = {
        "state": decide.to_json(memory.state),
        "book": memory.book.to_json(),
        "groups": {group: dict(members) for group, members in memory.groups.items()},
    }
    body = json.dumps(content, sort_keys=True)
    return json.dumps({"version": 1, "digest": hashlib.sha256(body.encode()).hexdigest(), "content": content})


def _parse(text: str) -> Memory:
    found = json.loads(text)
    content = found["content"]
    body = json.dumps(content, sort_keys=True)
    if found["version"] != 1 or hashlib.sha256(body.encode()).hexdigest() != found["digest"]:
        raise ValueError("its digest is wrong")
    return Memory(decide.from_json(content["state"]), Book.from_json(content["book"]), content["groups"])
