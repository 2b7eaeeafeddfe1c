"""Evaluation of recording rules, whose results go to the agent of this host."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from alerts.evaluation.recordings import FILE, RecordedSeries, RecordingFile, recorded_lines
from alerts.evaluation.rule_evaluator import RuleEvaluator
from alerts.evaluation.rule_history import RuleHistory
from alerts.evaluation.verdicts import RuleFailedError
from alerts.state.recorded_lines import RecordedByKey, RecordedLines
from alerts.state.rule import RecordingRule
from artimon.runtime.config_file import MAX_PROBLEMS


@dataclass(frozen=True, slots=True)
class RecordingResult:
    """Last evaluation of a recording rule. `time_ms` 0: not evaluated since the start."""

    time_ms: int = 0
    error: str = ""
    duration_ms: float = 0.0


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
        self.results: Mapping[str, RecordingResult] = {}
        """Result of each rule in force by its name. Replaced, not changed: every thread may read it."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems of the last evaluation."""
        return (*self._problems, *([self._unwritten] if self._unwritten else []))

    def record(
        self,
        evaluator: RuleEvaluator,
        rules: Sequence[RecordingRule],
        due: Sequence[RecordingRule],
        time_ms: int,
        history: RuleHistory | None,
    ) -> RecordedLines | None:
        """Evaluate those of the `rules` in force that are due; None without a result."""
        last = {one.name: self.results.get(one.name, RecordingResult()) for one in rules}
        if self._file is None:
            missing = "not evaluated: give --recordings, a folder of drop-in files"
            self._problems = (f"{len(due)} recording rules are {missing}",) if due else ()
            self.results = {**last, **{one.name: RecordingResult(error=missing) for one in due}}
            return None
        found: list[RecordedSeries] = []
        problems: list[str] = []
        for rule in due:
            began, error = perf_counter(), ""
            try:
                found += evaluator.record(rule, history)
            except RuleFailedError as problem:
                error = str(problem)
                problems.append(f"{rule.name}: {error}")
            last[rule.name] = RecordingResult(time_ms, error, (perf_counter() - began) * 1000)
        self.results = last
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
