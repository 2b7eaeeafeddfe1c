"""Alert rules: files of expressions, asked every minute; states that survive a restart; one mail when an alert fires,
one when it resolves. Start reading at engine.py; the decisions are in state.py and verdicts.py. Docs: docs/alerts.md.
"""

from __future__ import annotations

from alerts.engine_process import AlertsConfig, run_alerts
from alerts.rules.rulebook import check_files
from alerts.state.errors import AlertsError, Problem, RuleFileError
from alerts.state.publication import read_alerts

__all__ = ["AlertsConfig", "AlertsError", "Problem", "RuleFileError", "check_files", "read_alerts", "run_alerts"]
