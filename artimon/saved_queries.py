"""Queries of a notebook as texts of files: an alert rule, or a dashboard with one panel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from alerts.rules.rule_file import parse_rules
from artimon.dashboards.dashboard_file import read_dashboard, write_yaml
from artimon.runtime.config_file import ConfigFileError
from query_dsl.tree.query_errors import QueryError


def rule_text(query: str, name: str, threshold: str, hold: str, missing: str, keys: Mapping[str, Any]) -> str:
    """Return the text of a rule file. Raises QueryError with the problems that the alert engine would report."""
    rule = {"name": name, "expr": query, "threshold": threshold, "for": hold, "missing": missing, **keys}
    return _checked({"rules": [rule]}, parse_rules, "rule")


def panel_text(query: str, title: str, kind: str, keys: Mapping[str, Any]) -> str:
    """Return the text of a dashboard with one panel. Raises QueryError with the problems of the file."""
    panel = {"title": title, "kind": kind, **keys, "queries": [{"q": query}]}
    return _checked({"title": title, "panels": [panel]}, read_dashboard, "panel")


def _checked(content: Mapping[str, Any], read: Callable[[str, str], object], name: str) -> str:
    text = write_yaml(content)
    try:
        read(text, name)
    except ConfigFileError as problem:
        raise QueryError(str(problem)) from None
    return text
