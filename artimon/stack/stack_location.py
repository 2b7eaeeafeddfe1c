"""Addresses of the servers: settings, in which the addresses of a running stack replace the defaults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from artimon.runtime import settings as defaults
from artimon.runtime.settings import Settings
from artimon.stack.stack_errors import StackError
from artimon.stack.stack_state import read_state, running_state


def locate_settings(data: Path | None = None) -> Settings:
    """Return settings in which addresses of the stack that runs on the data folder replace the defaults."""
    found = defaults.load()
    found = replace(found, data=(data or found.data).expanduser().absolute())
    state = read_state(found.data)
    if state is None or not state.alive():
        return found
    places = state.addresses
    return replace(
        found,
        zookeeper=_choose(found.zookeeper, defaults.DEFAULT_ZOOKEEPER, places.get("ARTIMON_ZOOKEEPER")),
        kafka=_choose(found.kafka, defaults.DEFAULT_KAFKA, places.get("ARTIMON_KAFKA")),
        hdfs=_choose(found.hdfs, defaults.DEFAULT_HDFS, places.get("ARTIMON_HDFS")),
        api=_choose(found.api, defaults.DEFAULT_API, places.get("ARTIMON_API")),
        matrix=_choose(found.matrix, defaults.DEFAULT_MATRIX, places.get("ARTIMON_MATRIX")),
        config_keys=found.config_keys or (Path(keys) if (keys := places.get("ARTIMON_CONFIG_KEYS")) else None),
        smtp=_choose(found.smtp, defaults.DEFAULT_SMTP, places.get("ARTIMON_SMTP")),
    )


def zookeeper_of_store(zookeeper: str | None, data: Path | None) -> str:
    """Return the ZooKeeper for queries: `zookeeper`, else that of the stack on `data`, else that of the settings.

    Raises NotRunningError if `data` is given, here or by ARTIMON_DATA, and no stack runs on it."""
    if zookeeper:
        return zookeeper
    found = locate_settings(data)
    if data is not None or (found.data_given and found.zookeeper == defaults.DEFAULT_ZOOKEEPER):
        return running_state(found.data).addresses["ARTIMON_ZOOKEEPER"]
    return found.zookeeper


def receiver_of(data: Path | None) -> str:
    """Return the URL at which the agent of the stack that runs on `data` receives. Raises StackError."""
    place = locate_settings(data).data
    found = running_state(place).addresses.get("ARTIMON_RECEIVE")
    if found is None:
        raise StackError(f"the stack on {place} runs no agent that receives: name one by --to URL")
    return found


def engine_token_of(data: Path | None) -> Path | None:
    """Return the file with the token of the alert engine of the stack that runs on `data`; None without a token."""
    state = read_state(locate_settings(data).data)
    found = state.addresses.get("ARTIMON_TOKEN_FILE") if state is not None and state.alive() else None
    return Path(found) if found else None


def _choose(value: str, default: str, running: str | None) -> str:
    return running if running and value == default else value
