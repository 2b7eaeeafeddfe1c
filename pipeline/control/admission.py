"""Admission of documents and commands from ZooKeeper. Every client may change numbers; other changes need a proof.

The proof is a signature if the agent has keys, else the access list of the node: only the ZooKeeper user of the agent
itself can have written it. With or without proof, the names in a document must be allowed on this host.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from kazoo.client import KazooClient

from artimon.runtime.zookeeper_client import is_owned
from pipeline.control.agent_commands import Command, CommandError
from pipeline.control.config_document import (
    ConfigDocument,
    ConfigError,
    canonical,
    changes_only_numbers,
    parse_document,
)
from pipeline.control.control_tree import COMMANDS, ConfigVersion, config_path
from pipeline.control.rollout import Layer, Proof
from pipeline.control.signatures import InvalidSignatureError, SigningKeys

CONFIG_KIND, COMMAND_KIND = "config", "command"
"""Kinds of signed content: a signature of one kind is never valid for the other."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Means by which an agent recognizes its operators: `keys` of signatures; `digest`: its own user:password of
    ZooKeeper. With keys only signatures count."""

    keys: SigningKeys | None = None
    digest: str = ""

    @property
    def remedy(self) -> str:
        """Next step of the operator."""
        if self.keys is not None:
            return f"push it again with ARTIMON_CONFIG_KEYS set to the file of key {' or '.join(self.keys.secrets)}"
        if self.digest:
            return "run `artimon config secure`, then push it again with ARTIMON_ZOOKEEPER_AUTH set"
        return "give the agent and the operator a key (`artimon config key`, ARTIMON_CONFIG_KEYS), then push it again"


class Admission:
    """`allowed(document)` raises ConfigError if a pushed document names a resource that this host forbids."""

    def __init__(self, trust: Trust, client: KazooClient, allowed: Callable[[ConfigDocument], None]) -> None:
        self._trust, self._client, self._allowed = trust, client, allowed

    def admit_layer(self, version: ConfigVersion, known: Layer | None) -> Layer:
        """Return the layer of a version, given the known layer of its scope. Raises ConfigError if the version is
        rejected, and `watcher.LOST`."""
        document, text = parse_document(version.document), canonical(version.document)
        if known is not None and (known.stamp, known.text) == (version.stamp, text):
            return known
        old = {} if known is None else json.loads(known.text)
        try:
            by = self._proof(version)
        except InvalidSignatureError as problem:
            if not changes_only_numbers(old, version.document):
                numbers = "it changes more than numbers"
                raise ConfigError(f"{numbers}, and {problem}: {self._trust.remedy}") from None
            layer = Layer(version.stamp, text, None if known is None else known.proof)
        else:
            layer = Layer(version.stamp, text, Proof(by, *version.stamp[1:], version.made_ms))
        self._allowed(document)
        return layer

    def refusal_of_remembered(self, layer: Layer) -> str:
        """Return the reason why a remembered layer must no longer run, "" if it may."""
        if not is_admissible(layer):
            return f"it changes more than numbers, and it has no proof: {self._trust.remedy}"
        try:
            if layer.stamp.scope != "file":
                self._allowed(parse_document(json.loads(layer.text)))
        except ConfigError as problem:
            return str(problem)
        return ""

    def check_command(self, agent: str, command: Command) -> None:
        """Raise CommandError for a command without a proof; raises `watcher.LOST` too."""
        try:
            if self._trust.keys is not None:
                self._trust.keys.verify(COMMAND_KIND, signed_command(agent, command), command.signature)
            else:
                self._owner(f"{COMMANDS}/{agent}/{command.id}")
        except InvalidSignatureError as problem:
            remedy = self._trust.remedy.replace("push it", "give it")
            raise CommandError(f"{problem}: {remedy}") from None

    def _proof(self, version: ConfigVersion) -> str:
        """Return the key or user that vouches for a version. Raises InvalidSignatureError."""
        if self._trust.keys is not None:
            return f"key {self._trust.keys.verify(CONFIG_KIND, signed_version(version), version.signature)}"
        path = config_path(version.stamp.scope)
        return self._owner(path, f"{path}/{version.stamp.number:010d}")

    def _owner(self, *paths: str) -> str:
        digest = self._trust.digest
        for path in paths:
            if not digest or not is_owned(self._client, path, digest):
                raise InvalidSignatureError("it is not signed" if not digest else f"others may write {path}")
        return f"ZooKeeper user {digest.partition(':')[0]}"


def is_admissible(layer: Layer) -> bool:
    """Return True if a remembered layer may run: it is a file of this host, has a proof, or changes numbers only."""
    local = layer.stamp.scope == "file"
    return local or layer.proof is not None or changes_only_numbers({}, json.loads(layer.text))


def signed_version(version: ConfigVersion) -> dict[str, object]:
    """Return the signed content of a version: all of it, with its scope, lineage and number."""
    told = {"made_ms": version.made_ms, "by": version.by, "note": version.note, "source": version.source}
    return {**version.stamp._asdict(), "document": version.document, **told}


def signed_command(agent: str, command: Command) -> dict[str, object]:
    """Return the signed content of a command: all of it, with its agent and id."""
    return {"agent": agent, "id": command.id, **command.content()}
