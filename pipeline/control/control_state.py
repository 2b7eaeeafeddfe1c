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

from pipeline.control import rollout as decide
from pipeline.control.agent_commands import CommandJournal
from pipeline.control.rollout import RolloutState
from pipeline.link.config_changes import ConfigChanges
from pipeline.wal.file_system import LOCAL_FILE_SYSTEM, ensure_folder

log = logging.getLogger(__name__)
STATE_FILE = "plane.json"


@dataclass(frozen=True, slots=True)
class ControlState:
    """State that outlives the process. `groups`: last known members of each group."""

    state: RolloutState = field(default_factory=RolloutState)
    journal: CommandJournal = field(default_factory=CommandJournal)
    groups: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    changes: ConfigChanges | None = None
    """Changes of the configuration that were read; None if unknown."""


class ControlStateFile:
    """The file in `folder`. Not thread-safe: its owner is one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / STATE_FILE
        self._saved_text = ""
        self.damaged = ""

    def load(self) -> ControlState:
        """Return the last saved state; an empty one if there is none or it is damaged."""
        try:
            return _parse(self._path.read_text())
        except FileNotFoundError:
            return ControlState()
        except (ValueError, KeyError, TypeError) as error:
            aside = self._path.with_suffix(".damaged")
            self._path.replace(aside)
            self.damaged = f"{self._path} was damaged ({error!r}) and is kept as {aside.name}: configuration unknown"
            log.error("%s", self.damaged)
            return ControlState()

    def save(self, memory: ControlState) -> None:
        """Save the state; durable when this returns. Raises OSError; then the old file remains."""
        text = _text(memory)
        if text == self._saved_text:
            return
        ensure_folder(LOCAL_FILE_SYSTEM, self._folder)
        fresh = self._path.with_suffix(".new")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        LOCAL_FILE_SYSTEM.fsync_folder(self._folder)
        self._saved_text = text


def _text(memory: ControlState) -> str:
    content = {
        "state": decide.to_json(memory.state),
        "book": memory.journal.to_json(),
        "groups": {group: dict(members) for group, members in memory.groups.items()},
        "changes": [memory.changes.lineage, memory.changes.number] if memory.changes is not None else None,
    }
    body = json.dumps(content, sort_keys=True)
    return json.dumps({"version": 1, "digest": hashlib.sha256(body.encode()).hexdigest(), "content": content})


def _parse(text: str) -> ControlState:
    found = json.loads(text)
    content = found["content"]
    body = json.dumps(content, sort_keys=True)
    if found["version"] != 1 or hashlib.sha256(body.encode()).hexdigest() != found["digest"]:
        raise ValueError("its digest is wrong")
    known = content.get("changes")  # not in files of older versions
    changes = None if known is None else ConfigChanges(str(known[0]), int(known[1]))
    return ControlState(
        decide.from_json(content["state"]), CommandJournal.from_json(content["book"]), content["groups"], changes
    )
