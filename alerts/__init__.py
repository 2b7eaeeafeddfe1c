"""Alert rules: files of expressions, evaluated every minute; states that survive a restart; one notification when an
alert fires, one when it resolves.

Reading order: `state` (the states of one alert are in `state/alert.py`), `receivers`, `rules`, `dispatch` (from alerts
to messages), `evaluation` (begin with `alert_engine`), `api`, `pair` (several engines), `engine_process`. Docs:
docs/alerts.md.
"""

from __future__ import annotations

from alerts.engine_process import AlertsConfig, run_alerts
from alerts.rules.rule_folder import check_files
from alerts.state.publication import read_alerts
from alerts.state.rule import AlertsError

__all__ = ["AlertsConfig", "AlertsError", "check_files", "read_alerts", "run_alerts"]
