"""Newest append of the raw table: the only parser of commits.

Only appends carry state; commits of compaction and expiry may follow the newest append. docs/formats/raw.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from artimon.rawtable.delta import CALL_TIMEOUT_S, first_line
from artimon.rawtable.schema import TableError, raw_uri
from artimon.rawtable.table_state import RawState, from_json
from artimon.runtime import file_access as files
from artimon.runtime.deadline import call_with_timeout

METADATA_KEY = "artimon"
"""Key of an append's state in `commitInfo`."""
LOG_FOLDER = "_delta_log"


class HeadReader:
    """Follows the newest append by reads of commits only, cheap enough for a call every few seconds. Used by one thread
    at a time."""

    def __init__(self, hdfs: str) -> None:
        self._uri = raw_uri(hdfs)
        self._checked_version = -1
        self._head: tuple[int, RawState] = 0, RawState()

    def head(self) -> tuple[int, RawState]:
        """Same as RawTable.head. Raises TableError, OSError; FileNotFoundError if the table does not exist yet."""
        files.check_reachable(self._uri)
        if self._checked_version < 0 or last_checkpoint(self._uri) > self._checked_version:
            self._find_newest()
        while (state := self._read_next()) is not None:
            if state.append:
                self._head = self._checked_version, state
        return self._head

    def _find_newest(self) -> None:
        try:
            newest = call_with_timeout(CALL_TIMEOUT_S, f"opening {self._uri}", lambda: DeltaTable(self._uri).version())
        except TableNotFoundError:
            raise FileNotFoundError(f"{self._uri} does not exist yet") from None
        except DeltaError as error:
            raise TableError(f"{self._uri} cannot be read: {first_line(error)}") from error
        self._head = newest_append(self._uri, newest) or self._head
        self._checked_version = newest

    def _read_next(self) -> RawState | None:
        """Read the next commit and return its state, an empty one if it carries none; None if it does not exist yet."""
        try:
            state = read_state(self._uri, self._checked_version + 1)
        except FileNotFoundError:
            return None
        if (
            last_checkpoint(self._uri) > self._checked_version + 1
        ):  # cleanup may have deleted it, and this be a stale one
            self._find_newest()
            return RawState()
        self._checked_version += 1
        return state or RawState()


def newest_append(uri: str, newest: int, known: int = 0) -> tuple[int, RawState] | None:
    """Return the newest append among the commits (known, newest]. Raises TableStateError, and as `newest_document`."""
    found = newest_document(uri, newest, known)
    return (found[0], from_json(found[1])) if found else None


def newest_document(uri: str, newest: int, known: int = 0) -> tuple[int, Mapping[str, Any]] | None:
    """Return version and JSON of the newest append among the commits (known, newest]. Raises OSError, and TableError
    if log cleanup deleted it: the table must not be taken for an empty one."""
    for version in range(newest, known, -1):
        try:
            document = read_document(uri, version)
        except FileNotFoundError as error:
            raise TableError(
                f"{uri}: commit {version} is gone and the newer ones are not appends: its state is lost; restore"
                " the file from a backup, or begin a new table"
            ) from error
        if document is not None:
            return version, document
    return None


def read_state(uri: str, version: int) -> RawState | None:
    """Return the state of commit `version`; None if it is not an append. Raises OSError, TableStateError."""
    document = read_document(uri, version)
    return None if document is None else from_json(document)


def read_document(uri: str, version: int) -> Mapping[str, Any] | None:
    """Return the state of commit `version` as JSON; None if it is not an append. Raises OSError, TableError."""
    (found,) = read_actions(uri, version, "commitInfo")
    for action in found:
        if METADATA_KEY in action:
            document: Mapping[str, Any] = action[METADATA_KEY]
            return document
    return None


def read_actions(uri: str, version: int, *kinds: str) -> list[list[dict[str, Any]]]:
    """Return the actions of each of the kinds ("commitInfo", "add", "remove") in commit `version`. Raises OSError,
    FileNotFoundError if the commit does not exist, TableError."""
    lines = files.read_file(f"{uri}/{LOG_FOLDER}/{version:020d}.json").splitlines()
    words = [f'"{kind}"'.encode() for kind in kinds]
    try:
        parsed = [json.loads(line) for line in lines if any(word in line for word in words)]
        return [[action[kind] for action in parsed if kind in action] for kind in kinds]
    except (ValueError, KeyError, TypeError) as error:
        raise TableError(f"{uri}: commit {version} cannot be read: {first_line(error)}") from error


def last_checkpoint(uri: str) -> int:
    """Return the version of the newest checkpoint of the table at `uri`; -1 if there is none. Commits at or above it
    are never deleted. Raises OSError, TableError."""
    try:
        told = json.loads(files.read_file(f"{uri}/{LOG_FOLDER}/_last_checkpoint"))
        return int(told["version"])
    except FileNotFoundError:
        return -1
    except (ValueError, KeyError, TypeError) as error:
        raise TableError(f"{uri}/{LOG_FOLDER}/_last_checkpoint cannot be read: {first_line(error)}") from error
