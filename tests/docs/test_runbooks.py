"""Every problem that the status names has a section in the runbooks, with the text that an operator sees."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from artimon.api.fleet_status import LIMITS
from artimon.runtime.self_metrics import metrics_tables

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "howto" / "runbooks.md").read_text()
SECTIONS = dict(re.findall(r"(?ms)^## (\S+)\n(.*?)(?=^## |\Z)", PAGE))
STATES = {"missing", "silent", "failing"}


def shipped_alerts() -> set[str]:
    """Return the names of the rules that every stack gets."""
    files = (ROOT / "alerts" / "rules").glob("*.yaml")
    return {rule["name"] for file in files for rule in yaml.safe_load(file.read_text())["rules"]}


def alarms() -> set[str]:
    """Return the own variables that count alarms."""
    return {own.name for table in metrics_tables().values() for own in table if own.name.endswith(".alarms")}


def test_every_problem_has_a_runbook_and_every_runbook_a_problem() -> None:
    assert alarms() == {"artimon.compactor.alarms", "artimon.agent.flow.alarms"}
    assert set(SECTIONS) == {*LIMITS, *STATES, *shipped_alerts(), *alarms()}


def test_a_runbook_quotes_the_text_of_its_problem() -> None:
    for name, limit in LIMITS.items():
        words = limit.text.replace(" for {}", "").replace(" {}", "").partition(":")[0].partition(",")[0]
        assert words in SECTIONS[name], f"{name}: {limit.text}"


def test_a_runbook_says_what_to_do() -> None:
    for name, text in SECTIONS.items():
        assert "](" in text or "`" in text or "log" in text, f"{name} names no command, page or log"
