"""Evaluation of recording rules, whose results go to the agent of this host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from alerts.evaluation.recordings import RecordedSeries, RecordingFile
from alerts.evaluation.rule_evaluator import RuleEvaluator
from alerts.evaluation.rule_history import RuleHistory
from alerts.evaluation.verdicts import RuleFailedError
from alerts.state.rule import RecordingRule
from artimon.runtime.config_file import MAX_PROBLEMS


class Recorder:
    """Evaluates recording rules. Belongs to the engine's thread."""

    def __init__(self, folder: Path | None) -> None:
        """`folder`: folder of drop-in files of the agent; None: nothing is recorded."""
        self._file = None if folder is None else RecordingFile(folder)
        self.problems: tuple[str, ...] = ()
        """Problems of the last evaluation."""

    def record(
        self, evaluator: RuleEvaluator, due: Sequence[RecordingRule], time_ms: int, history: RuleHistory | None
    ) -> None:
        """Evaluate the rules that are due and hand their results to the agent."""
        file = self._file
        if file is None:
            missing = f"{len(due)} recording rules are not evaluated: give --recordings, a folder of drop-in files"
            self.problems = (missing,) if due else ()
            return
        found: list[RecordedSeries] = []
        problems: list[str] = []
        for rule in due:
            try:
                found += evaluator.record(rule, history)
            except RuleFailedError as problem:
                problems.append(f"{rule.name}: {problem}")
        try:
            if found and (dropped := file.write(time_ms, found)):
                problems.append(f"{dropped} recorded series were left out: there are too many")
        except OSError as error:
            problems.append(f"recorded series cannot be written: {error}")
        self.problems = tuple(problems[:MAX_PROBLEMS])
