"""Alerts that the role of a request may see. Pure, but for the principal of the request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from artimon.access.principal import current_principal
from artimon.access.scoped_store import visibility


def visible_alerts(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the alerts whose labels the role may see, and the rules that have one; everything for other roles.

    A rule without a visible alert, and each recording rule, is hidden: its query, its error and its completeness may
    name what the role does not see."""
    principal = current_principal()
    if principal is None or not principal.is_restricted:
        return told
    is_visible = visibility(principal.role.sees)
    alerts = [one for one in told["alerts"] if is_visible(_texts(one.get("labels")))]
    names = {one.get("rule") for one in alerts}
    rules = [{**one, "error": "", "completeness": ""} for one in told["rules"] if one.get("name") in names]
    return {**told, "rules": rules, "recordings": [], "alerts": alerts}


def visible_groups(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the groups with the alerts that the role may see, without empty ones. Its alerts do not tell their
    completeness, which may name hosts that the role does not see."""
    principal = current_principal()
    if principal is None or not principal.is_restricted:
        return [{**group} for group in groups if group["alerts"]]
    is_visible = visibility(principal.role.sees)
    seen = (
        {**group, "alerts": [_without_completeness(one) for one in group["alerts"] if is_visible(one["labels"])]}
        for group in groups
    )
    return [group for group in seen if group["alerts"]]


def _without_completeness(alert: Mapping[str, Any]) -> dict[str, Any]:
    annotations = {name: text for name, text in alert["annotations"].items() if name != "completeness"}
    return {**alert, "annotations": annotations}


def _texts(labels: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in labels.items()} if isinstance(labels, Mapping) else {}
