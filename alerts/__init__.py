"""Alert rules: files of expressions, asked every minute; states that survive a restart; one mail when an alert fires,
one when it resolves. Start reading at engine.py; the decisions are in state.py and verdicts.py. Docs: docs/alerts.md.
"""

from __future__ import annotations

from alerts.display import read_alerts
from alerts.errors import AlertsError
from alerts.process import AlertsConfig, run_alerts
from alerts.rulebook import check_files

__all__ = ["AlertsConfig", "AlertsError", "check_files", "read_alerts", "run_alerts"]
