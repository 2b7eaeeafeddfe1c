"""Routing file as the API shows it: the text in force, with secrets replaced. Pure."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import yaml

NO_FILE = "route:\n  receiver: default\nreceivers:\n- name: default\n"
"""Configuration of an engine without a routing file, in the form of Alertmanager."""
MASK = "<secret>"
OWN_KEYS = frozenset(("escalation", "alertmanager_configs", "apprise_configs"))
"""Keys of a routing file that Alertmanager does not have."""
_SECRET_KEY = re.compile(r"password|secret|token|credential|api_key|service_key|routing_key|webhook_url|api_url")
_URL = re.compile(r"https?://", re.IGNORECASE)


def shown_config(text: str) -> str:
    """Return a routing file without passwords, tokens and paths of URLs, which may be secrets, and without the keys
    that clients of Alertmanager refuse."""
    if not text:
        return NO_FILE
    node = yaml.compose(text, yaml.SafeLoader)
    return NO_FILE if node is None else str(yaml.serialize(_shown(node, ""), Dumper=yaml.SafeDumper))


def _shown(node: yaml.Node, key: str) -> yaml.Node:
    """Mask a node in place; `key`: that of the mapping which holds it."""
    if isinstance(node, yaml.MappingNode):
        node.value = [pair for pair in node.value if pair[0].value not in OWN_KEYS]
        for name, value in node.value:
            _shown(value, str(name.value).lower())
    elif isinstance(node, yaml.SequenceNode):
        for one in node.value:
            _shown(one, key)
    elif isinstance(node, yaml.ScalarNode) and node.value:
        if _SECRET_KEY.search(key) and not key.endswith("_file"):
            node.value, node.style = MASK, None
        elif _URL.match(node.value):
            node.value, node.style = _shown_url(node.value), None
    return node


def _shown_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "http://masked"
    host = "".join(one for one in parts.hostname or "" if one.isalnum() or one in ".-_")
    return f"{parts.scheme}://{host}{port}/masked"
