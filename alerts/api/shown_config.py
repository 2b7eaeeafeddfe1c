"""Routing file as the API shows it: the text in force, with secrets replaced. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import yaml

NO_FILE = "route:\n  receiver: default\nreceivers:\n- name: default\n"
"""Configuration of an engine without a routing file, in the form of Alertmanager."""
MASK = '"<secret>"'
_SECRET_KEY = re.compile(r"password|secret|token|credential|api_key|service_key|routing_key|webhook_url|api_url")
_URL = re.compile(r"https?://", re.IGNORECASE)


def shown_config(text: str) -> str:
    """Return the text of a routing file without passwords, tokens and paths of URLs, which may be secrets."""
    if not text:
        return NO_FILE
    parts, at = [], 0
    for begin, end, shown in sorted(_replacements(yaml.compose(text, yaml.SafeLoader), "")):
        parts += [text[at:begin], shown]
        at = end
    return "".join([*parts, text[at:]])


def _replacements(node: yaml.Node | None, key: str) -> Iterator[tuple[int, int, str]]:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield from _replacements(value, str(name.value).lower())
    elif isinstance(node, yaml.SequenceNode):
        for one in node.value:
            yield from _replacements(one, key)
    elif isinstance(node, yaml.ScalarNode) and node.value:
        begin, end = node.start_mark.index, node.end_mark.index
        if _SECRET_KEY.search(key) and not key.endswith("_file"):
            yield begin, end, MASK
        elif _URL.match(node.value):
            yield begin, end, f'"{_shown_url(node.value)}"'


def _shown_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "http://masked"
    host = "".join(one for one in parts.hostname or "" if one.isalnum() or one in ".-_")
    return f"{parts.scheme}://{host}{port}/masked"
