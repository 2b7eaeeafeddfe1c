"""Where an address stands: labels dc, rack, module, host, environment, the same whoever polls.

Rules by address range come first, then what the reverse name says. A name reads `<dc>-<rack>-<module><number>`, as in
`jb-r12-web01.example.org`: dc letters, then digits if any; rack `r` and digits, or digits; module letters. Any other
name gives `host` only. Names are used without their domain, so that a machine has one name for itself and for others.
"""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artimon.model.labels import LabelError, validate_labels
from sources.base.errors import RulesError

PLACEMENT_LABELS = ("dc", "rack", "module", "host", "environment")
_NAME = re.compile(r"(?P<dc>[a-z]+[0-9]*)-(?P<rack>r?[0-9]+)-(?P<module>[a-z]+)[0-9]*(?:-.*)?", re.IGNORECASE)
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """Addresses in `net` get `labels`; of several that fit, the narrower range has the say, label by label."""

    net: _Network
    labels: Mapping[str, str]


def read_rules(path: Path) -> tuple[PlacementRule, ...]:
    """Rules of a JSON or TOML file: a list `rules` of {"net": "10.1.0.0/16", "labels": {…}} (in JSON, or the list)."""
    try:
        text = path.read_text()
        content: Any = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise RulesError(f"placement rules {path}: {error}") from error
    entries = content.get("rules") if isinstance(content, dict) else content
    if not isinstance(entries, list):
        raise RulesError(f'placement rules {path}: want a list of {{"net": …, "labels": {{…}}}}')
    rules = [_rule(path, i, entry) for i, entry in enumerate(entries)]
    return tuple(sorted(rules, key=lambda rule: rule.net.prefixlen))


def _rule(path: Path, number: int, entry: Any) -> PlacementRule:
    where = f"placement rules {path}, entry {number}"
    if not isinstance(entry, dict) or set(entry) != {"net", "labels"} or not isinstance(entry["labels"], dict):
        raise RulesError(f'{where}: want {{"net": "10.1.0.0/16", "labels": {{"dc": "jb"}}}}, found {entry!r:.200}')
    try:
        validate_labels(entry["labels"])
        return PlacementRule(ipaddress.ip_network(entry["net"]), dict(entry["labels"]))
    except (LabelError, ValueError) as error:
        raise RulesError(f"{where}: {error}") from error


def labels_by_rule(rules: tuple[PlacementRule, ...], ip: str) -> dict[str, str]:
    """What the rules say of an address."""
    address = ipaddress.ip_address(ip)
    labels: dict[str, str] = {}
    for rule in rules:
        if address in rule.net:
            labels.update(rule.labels)
    return labels


def labels_of_name(name: str) -> dict[str, str]:
    """What a host name says.

    >>> labels_of_name("jb-r12-web01.example.org")
    {'host': 'jb-r12-web01', 'dc': 'jb', 'rack': 'r12', 'module': 'web'}
    """
    short = name.split(".", 1)[0]
    found = _NAME.fullmatch(short)
    return {"host": short, **(found.groupdict() if found else {})}
