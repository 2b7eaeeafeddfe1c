"""Placement of an address: labels dc, rack, module, host, environment, the same for every polling agent.

Rules by address range take precedence over the reverse name. A name has the form `<dc>-<rack>-<module><number>`, e.g.
`jb-r12-web01.example.org`: dc letters, then optional digits; rack `r` and digits, or digits; module letters. Any other
name gives `host` only. The domain is removed, so that a machine has the same name for itself and for others.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, RootModel

from artimon.model.labels import validate_labels
from artimon.runtime.config_file import read_config
from artimon.runtime.config_model import Section, checked, parsed

_NAME = re.compile(r"(?P<dc>[a-z]+[0-9]*)-(?P<rack>r?[0-9]+)-(?P<module>[a-z]+)[0-9]*(?:-.*)?", re.IGNORECASE)
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class PlacementRule(Section):
    """Labels of the addresses in `net`. If several rules match, the narrower range wins for each label."""

    net: Annotated[_Network, parsed(ipaddress.ip_network)]
    labels: Annotated[dict[str, str], checked(validate_labels)]


class _Rules(Section):
    rules: tuple[PlacementRule, ...] = Field(description='a list of {"net": "10.1.0.0/16", "labels": {"dc": "jb"}}')


def read_rules(path: Path) -> tuple[PlacementRule, ...]:
    """Return the rules of a file: TOML or JSON with a list `rules`, in JSON also the list alone. Raises
    ConfigFileError."""
    file = read_config(path, form="toml" if path.suffix == ".toml" else "json")
    if isinstance(file.data, list):
        rules = file.validate(RootModel[tuple[PlacementRule, ...]]).root
    else:
        rules = file.validate(_Rules).rules
    return tuple(sorted(rules, key=lambda rule: rule.net.prefixlen))


def labels_by_rule(rules: tuple[PlacementRule, ...], ip: str) -> dict[str, str]:
    """Return the labels that the rules give to an address."""
    address = ipaddress.ip_address(ip)
    labels: dict[str, str] = {}
    for rule in rules:
        if address in rule.net:
            labels.update(rule.labels)
    return labels


def labels_of_name(name: str) -> dict[str, str]:
    """Return the labels that a host name gives.

    >>> labels_of_name("jb-r12-web01.example.org")
    {'host': 'jb-r12-web01', 'dc': 'jb', 'rack': 'r12', 'module': 'web'}
    """
    short = name.split(".", 1)[0]
    found = _NAME.fullmatch(short)
    return {"host": short, **(found.groupdict() if found else {})}
