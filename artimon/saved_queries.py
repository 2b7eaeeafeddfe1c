"""Queries of a notebook or of the page as texts of files: an alert rule, or a dashboard with one panel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from alerts.rules.rule_file import parse_rules
from artimon.dashboards.dashboard_file import read_dashboard, write_yaml
from artimon.runtime.config_file import ConfigFileError
from query_dsl.tree.query_errors import QueryError


def rule_text(
    query: str, name: str, threshold: str, hold: str, missing: str, keys: Mapping[str, Any], lang: str = "artimon"
) -> str:
    """Return the text of a rule file. Without a threshold, which only PromQL allows, each series of the answer is an
    alert. Raises QueryError with the problems that the alert engine would report."""
    rule = {"name": name, "promql" if lang == "promql" else "expr": query}
    rule |= {"threshold": threshold, "for": hold, "missing": missing} if threshold else {"for": hold}
    rule |= keys
    return _checked({"rules": [rule]}, parse_rules, "rule")


def panel_of(query: str, title: str, kind: str, lang: str = "artimon") -> dict[str, Any]:
    """Return a panel of a dashboard as plain data."""
    language = {} if lang == "artimon" else {"lang": lang}
    return {"title": title, "kind": kind, "queries": [{"q": query, **language}]}


def panel_text(query: str, title: str, kind: str, keys: Mapping[str, Any]) -> str:
    """Return the text of a dashboard with one panel. Raises QueryError with the problems of the file."""
    return dashboard_text(title, {"title": title, "kind": kind, **keys, **panel_of(query, title, kind)})


def dashboard_text(title: str, panel: Mapping[str, Any]) -> str:
    """Return the text of a dashboard with one panel. Raises QueryError with the problems of the file."""
    return _checked({"title": title, "panels": [panel]}, read_dashboard, "panel")


def _checked(content: Mapping[str, Any], read: Callable[[str, str], object], name: str) -> str:
    text = write_yaml(content)
    try:
        read(text, name)
    except ConfigFileError as problem:
        raise QueryError(str(problem)) from None
    return text
