"""Alert rules: files of expressions, evaluated every minute; states that survive a restart; one notification when an
alert fires, one when it resolves.

Reading order: `state` (the states of one alert are in `state/alert.py`), `receivers`, `rules`, `dispatch` (from alerts
to messages), `evaluation` (begin with `alert_engine`), `api`, `pair` (several engines), `engine_process`. Docs:
docs/alerts.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alerts.engine_process import AlertsConfig, run_alerts
    from alerts.rules.rule_folder import check_files
    from alerts.state.publication import read_alerts
    from alerts.state.rule import AlertsError

__all__ = ["AlertsConfig", "AlertsError", "check_files", "read_alerts", "run_alerts"]
_MODULES = {
    "AlertsConfig": "alerts.engine_process",
    "run_alerts": "alerts.engine_process",
    "check_files": "alerts.rules.rule_folder",
    "read_alerts": "alerts.state.publication",
    "AlertsError": "alerts.state.rule",
}
"""Modules of the names above, imported at the first use: the API needs the states of alerts, not the engine."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
