"""Desired against running configuration: the version that an agent runs, tries, or returns to. Pure: no I/O, no clock.

A new version is tried; it is *good* once it has run for PROBATION_S without a fault, and only then replaces the last
good one. A version that is refused, fails, or ends the process twice is not tried again; only a newer one is.
Silence of ZooKeeper changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

from pipeline.control.config_document import ConfigDocument, canonical, merge_layers, parse_document

PROBATION_S = 15.0
MAX_ATTEMPTS = 2
"""Most ends of the process during a trial before that version counts as their cause."""


class VersionId(NamedTuple):
    """Version of a scope ("group/default", "agent/web-7", "file"). Numbers grow within a lineage; a recreated scope
    (after ZooKeeper was wiped) has another lineage."""

    scope: str
    lineage: str
    number: int

    def __str__(self) -> str:
        return f"{self.scope}@{self.number}"


class Proof(NamedTuple):
    """Newest version of a scope that a key or the owner of ZooKeeper's nodes vouches for. An unsigned version that
    changes only numbers keeps the proof of the one below it."""

    by: str
    lineage: str
    number: int
    made_ms: int


@dataclass(frozen=True, slots=True)
class Layer:
    """One version of one scope; `text` is its document as canonical JSON. `proof`: None if only its numbers count."""

    stamp: VersionId
    text: str
    proof: Proof | None = None

    @property
    def is_proven(self) -> bool:
        """True if the proof is of this version, not of one below it."""
        return self.proof is not None and self.proof[1:3] == self.stamp[1:]


@dataclass(frozen=True, slots=True)
class Configuration:
    """Layers, the later ones over the earlier ones."""

    layers: tuple[Layer, ...] = ()

    @property
    def key(self) -> tuple[tuple[VersionId, str], ...]:
        """Identity of the configuration: versions and texts (a file changes without a number)."""
        return tuple((layer.stamp, layer.text) for layer in self.layers)

    def document(self) -> ConfigDocument:
        """Merge all layers. Raises ConfigError."""
        return parse_document(merge_layers(json.loads(layer.text) for layer in self.layers))

    def __str__(self) -> str:
        return " ".join(str(layer.stamp) for layer in self.layers) or "none"


NO_CONFIGURATION = Configuration()


@dataclass(frozen=True, slots=True)
class RolloutState:
    """An agent's knowledge of its configuration, stored on its disk, so that it starts without ZooKeeper.

    Invariant: `trying` runs if there is one, else `good`."""

    known: Mapping[str, Layer] = field(default_factory=dict)
    """Newest known version of each scope."""
    last_good: Configuration = NO_CONFIGURATION
    """Last configuration that worked."""
    trial: Configuration | None = None
    attempts: int = 0
    since: float = 0.0
    """Monotonic seconds at which this process began to try."""
    refused: Configuration | None = None
    reason: str = ""
    stale: str = ""
    """Versions in ZooKeeper that are older than the known ones, "" if none."""

    @property
    def running(self) -> Configuration:
        return self.trial if self.trial is not None else self.last_good


class RolloutAction(Enum):
    """Next action."""

    NOTHING = "nothing"
    TRY = "try"
    CONFIRM = "confirm"
    GO_BACK = "go back"


class RolloutStep(NamedTuple):
    """`target`: the configuration that runs afterwards."""

    act: RolloutAction
    target: Configuration = NO_CONFIGURATION
    reason: str = ""


def with_layers(state: RolloutState, found: Mapping[str, Layer]) -> RolloutState:
    """Take the present layers of the sources of configuration. An absent scope keeps its known layer; a version that
    `is_older` than the known one is ignored."""
    known, stale = dict(state.known), []
    for scope, layer in found.items():
        old = known.get(scope)
        if old is not None and is_older(layer, old):
            stale.append(f"{layer.stamp} is older than the known version {_newest(layer, old)}")
        else:
            known[scope] = layer
    return replace(state, known=known, stale="; ".join(stale))


def is_older(layer: Layer, old: Layer) -> bool:
    """Return True if `layer` is a replay of a version older than `old`. Proven versions are compared with proven ones:
    within a lineage by number, between lineages by the signed time. Unproven ones count within a lineage only."""
    if layer.is_proven and layer.proof is not None:
        if old.proof is None:
            return False
        if layer.stamp.lineage == old.proof.lineage:
            return layer.stamp.number < old.proof.number
        return layer.proof.made_ms <= old.proof.made_ms
    return layer.stamp.lineage == old.stamp.lineage and layer.stamp.number < old.stamp.number


def _newest(layer: Layer, old: Layer) -> int:
    return old.proof.number if layer.is_proven and old.proof is not None else old.stamp.number


def without_refused(state: RolloutState, keep: Callable[[Layer], bool]) -> RolloutState:
    """Return the state without the layers that `keep` refuses; a trial that loses a layer is ended."""
    known = {scope: layer for scope, layer in state.known.items() if keep(layer)}
    good = Configuration(tuple(layer for layer in state.last_good.layers if keep(layer)))
    trying = state.trial if state.trial is None or all(map(keep, state.trial.layers)) else None
    return replace(state, known=known, last_good=good, trial=trying, attempts=state.attempts if trying else 0)


def desired(state: RolloutState, scopes: Sequence[str]) -> Configuration:
    """Return the wanted configuration: the known layers of these scopes, in their order."""
    return Configuration(tuple(state.known[scope] for scope in scopes if scope in state.known))


def next_step(state: RolloutState, scopes: Sequence[str], now: float, fault: str) -> RolloutStep:
    """Return the next step. `fault`: fault of the running configuration, "" if none."""
    target = desired(state, scopes)
    refused = state.refused is not None and state.refused.key == target.key
    if target.key != state.running.key and not refused:
        if target.key == state.last_good.key:
            return RolloutStep(RolloutAction.GO_BACK, state.last_good, "taken back")
        return RolloutStep(RolloutAction.TRY, target)
    if state.trial is None:
        return RolloutStep(RolloutAction.NOTHING)
    if fault:
        return RolloutStep(RolloutAction.GO_BACK, state.last_good, fault)
    if now - state.since >= PROBATION_S:
        return RolloutStep(RolloutAction.CONFIRM, state.trial)
    return RolloutStep(RolloutAction.NOTHING)


def after_begin(state: RolloutState, target: Configuration, now: float) -> RolloutState:
    """State for the begin of a trial; must be on the disk before anything is changed."""
    return replace(state, trial=target, attempts=1, since=now)


def after_success(state: RolloutState) -> RolloutState:
    """State after a successful trial."""
    return replace(state, last_good=state.running, trial=None, attempts=0, refused=None, reason="")


def after_rollback(state: RolloutState, reason: str) -> RolloutState:
    """State after the return to the last good version; the tried one is refused."""
    return replace(state, trial=None, attempts=0, refused=state.trial or state.refused, reason=reason)


def after_rejection(state: RolloutState, target: Configuration, reason: str) -> RolloutState:
    """State after `target` was refused without a trial; the running version continues."""
    return replace(state, refused=target, reason=reason)


def after_restart(state: RolloutState, now: float) -> RolloutState:
    """State for a new process, from the stored one."""
    if state.trial is None:
        return state
    if state.attempts >= MAX_ATTEMPTS:
        return after_rollback(state, f"the agent ended {state.attempts} times while it tried this version")
    return replace(state, attempts=state.attempts + 1, since=now)


# --- on the disk


def to_json(state: RolloutState) -> dict[str, Any]:
    """Return plain values; `since` and `stale` belong to the process."""
    layers = {layer.stamp.scope: _layer(layer) for layer in state.known.values()}
    return {
        "known": layers,
        "good": _layers(state.last_good),
        "trying": None if state.trial is None else _layers(state.trial),
        "attempts": state.attempts,
        "refused": None if state.refused is None else _layers(state.refused),
        "reason": state.reason,
    }


def from_json(found: Mapping[str, Any]) -> RolloutState:
    """Inverse of `to_json`. Raises ValueError, KeyError, TypeError."""
    trying, refused = found["trying"], found["refused"]
    known = [_parse_layer(one) for one in found["known"].values()]
    return RolloutState(
        {layer.stamp.scope: layer for layer in known},
        _parse_layers(found["good"]),
        None if trying is None else _parse_layers(trying),
        int(found["attempts"]),
        0.0,
        None if refused is None else _parse_layers(refused),
        str(found["reason"]),
    )


def _layer(layer: Layer) -> dict[str, Any]:
    proof = {} if layer.proof is None else {"proof": list(layer.proof)}
    return {**layer.stamp._asdict(), "document": json.loads(layer.text), **proof}


def _layers(configuration: Configuration) -> list[dict[str, Any]]:
    return [_layer(layer) for layer in configuration.layers]


def _parse_layer(found: Mapping[str, Any]) -> Layer:
    stamp = VersionId(str(found["scope"]), str(found["lineage"]), int(found["number"]))
    proof = found.get("proof")
    return Layer(stamp, canonical(found["document"]), None if proof is None else _parse_proof(proof))


def _parse_proof(found: Sequence[Any]) -> Proof:
    by, lineage, number, made_ms = found
    return Proof(str(by), str(lineage), int(number), int(made_ms))


def _parse_layers(found: Sequence[Mapping[str, Any]]) -> Configuration:
    return Configuration(tuple(_parse_layer(one) for one in found))
