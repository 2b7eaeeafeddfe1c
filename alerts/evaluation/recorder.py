"""Evaluation of recording rules, whose results go to the agent of this host."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from alerts.evaluation.recordings import FILE, RecordedSeries, RecordingFile, recorded_lines
from alerts.evaluation.rule_evaluator import RuleEvaluator
from alerts.evaluation.rule_history import RuleHistory
from alerts.evaluation.verdicts import RuleFailedError
from alerts.state.recorded_lines import RecordedByKey, RecordedLines
from alerts.state.rule import RecordingRule
from artimon.runtime.config_file import MAX_PROBLEMS


class Recorder:
    """Evaluates recording rules. The results are stored with the evaluation, and are written to the file of the agent
    after that: a result that is not stored is never written, and one that is stored is written where it was made, after
    a kill when an engine starts there again. Engines of a pair with the same folder share the file, because a series
    belongs to one file of an agent. Belongs to the engine's thread."""

    def __init__(self, folder: Path | None) -> None:
        """`folder`: folder of drop-in files of the agent; None: nothing is recorded."""
        self._file = None if folder is None else RecordingFile(folder / FILE)
        self._place = "" if folder is None else f"{socket.gethostname()}:{folder.absolute()}"
        self._problems: tuple[str, ...] = ()
        self._unwritten = ""

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems of the last evaluation."""
        return (*self._problems, *([self._unwritten] if self._unwritten else []))

    def record(
        self, evaluator: RuleEvaluator, due: Sequence[RecordingRule], time_ms: int, history: RuleHistory | None
    ) -> RecordedLines | None:
        """Evaluate the rules that are due; None without a result."""
        if self._file is None:
            missing = f"{len(due)} recording rules are not evaluated: give --recordings, a folder of drop-in files"
            self._problems = (missing,) if due else ()
            return None
        found: list[RecordedSeries] = []
        problems: list[str] = []
        for rule in due:
            try:
                found += evaluator.record(rule, history)
            except RuleFailedError as problem:
                problems.append(f"{rule.name}: {problem}")
        lines = recorded_lines(time_ms, found)
        if len(lines) < len(found):
            problems.append(f"{len(found) - len(lines)} recorded series were left out: there are too many")
        self._problems = tuple(problems[:MAX_PROBLEMS])
        return RecordedLines(time_ms, self._place, lines) if lines else None

    def write(self, recorded: RecordedByKey) -> None:
        """Write what the database holds of this place to the file, if it is not there."""
        if self._file is None:
            return
        try:
            self._file.write({one.time_ms: one.lines for one in recorded.values() if one.place == self._place})
            self._unwritten = ""
        except OSError as error:  # the next evaluation tries again
            self._unwritten = f"recorded series cannot be written: {error}"
