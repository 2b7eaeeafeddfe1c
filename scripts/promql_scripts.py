"""Runner of test scripts in the language of Prometheus: `load`, `clear`, and `eval` with the expected answer.

https://github.com/prometheus/prometheus/tree/main/promql/promqltest describes the language. Evaluations with native
histograms, or with experimental features that we do not have, count as unsupported.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np

from artimon.compute.packed_samples import is_stale
from query_dsl.promql import NotSupported, PromqlError, PromqlResult, instant_query, query_store, range_query
from query_dsl.promql.scripted_samples import LiteralSamples
from query_dsl.promql.series_notation import POINT, NotationError, duration_ms, points_of, series_of, unquoted
from scripts.promql_shards import shard_of

Labels = dict[str, str]
EPSILON = 1e-6
"""Relative difference of numbers that count as equal."""
_EVAL = re.compile(
    r"eval(?:_(?P<old>fail|warn|info|ordered))?\s+(?:instant\s+(?:at\s+(?P<at>\S+)\s+)?"
    r"|range\s+from\s+(?P<from>\S+)\s+to\s+(?P<to>\S+)\s+step\s+(?P<step>\S+)\s+)(?P<text>.*)",
    re.IGNORECASE | re.DOTALL,
)
_RANGE = re.compile(r"expect\s+range\s+vector\s+from\s+(\S+)\s+to\s+(\S+)\s+step\s+(\S+)", re.IGNORECASE)


ScriptError = NotationError
"""A script that cannot be read."""


class Mismatch(Exception):
    """An answer that is not the expected one."""


@dataclass
class Evaluation:
    """One `eval` and what it expects."""

    text: str
    line: int
    at_ms: int = 0
    range_ms: tuple[int, int, int] | None = None
    fails: bool = False
    ordered: bool = False
    fail_text: str = ""
    fail_pattern: str = ""
    warn: list[str] = field(default_factory=list)
    info: list[str] = field(default_factory=list)
    no_warn: bool = False
    no_info: bool = False
    string: str | None = None
    window: tuple[int, int, int] | None = None
    expected: list[tuple[Labels, list[float | None]]] = field(default_factory=list)
    scalar: float | None = None
    native: bool = False


def same(a: float | None, b: float | None) -> bool:
    """Return True if two values count as equal."""
    if a is None or b is None:
        return a is b
    if math.isnan(a) or math.isnan(b):
        both = np.array([a, b])
        return math.isnan(a) and math.isnan(b) and bool(is_stale(both)[0] == is_stale(both)[1])
    if a == b:
        return True
    total, apart = abs(a) + abs(b), abs(a - b)
    if a == 0 or b == 0 or total < sys.float_info.min:
        return apart < EPSILON * sys.float_info.min
    return apart / min(total, sys.float_info.max) < EPSILON


class Script:
    """One script: commands run in order on samples of its own."""

    def __init__(self, text: str, shards: bool = False) -> None:
        """shards: also answer from a shard what its finest level holds."""
        self.lines, self._with_shards = text.splitlines(), shards
        self.shards: Counter[str] = Counter(passed=0, failed=0, unfit=0)
        self.samples = LiteralSamples()
        self.failures: list[str] = []
        self.unsupported: Counter[str] = Counter()
        self.passed = 0

    def run(self) -> None:
        for number, command, block in self._commands():
            word = command.split()[0].lower()
            if word == "clear":
                self.samples = LiteralSamples()
            elif word.startswith("load"):
                self._load(command, block)
            elif word.startswith("eval"):
                self._check(self._evaluation(number, command, block))
            else:
                raise ScriptError(f"line {number}: {command!r} is no command")

    def _commands(self) -> Iterator[tuple[int, str, list[str]]]:
        """Yield line number, command and the lines of its block."""
        at = 0
        while at < len(self.lines):
            line = self.lines[at].strip()
            at += 1
            if not line or line.startswith("#"):
                continue
            number, block = at, []
            alone = line.split()[0].lower() == "clear"
            while (
                not alone
                and at < len(self.lines)
                and self.lines[at].strip()
                and not self.lines[at].strip().startswith("#")
            ):
                block.append(self.lines[at].strip())
                at += 1
            yield number, line, block

    def _load(self, command: str, block: Sequence[str]) -> None:
        step_ms = duration_ms(command.split()[1])
        for line in block:
            labels, text = series_of(line)
            if command.lower().startswith("load_with_nhcb"):
                self._add_native(_histogram_of(labels))
            if "{{" in text or text.startswith("@st"):
                self._add_native(labels)
                continue
            values = zip(count(0, step_ms), points_of(text), strict=False)
            self.samples.add(labels, {time: value for time, value in values if value is not None})

    def _add_native(self, labels: Labels) -> None:
        self.samples.native.add(tuple(sorted(labels.items())))
        self.samples.add(labels, {})

    def _evaluation(self, number: int, command: str, block: Sequence[str]) -> Evaluation:
        found = _EVAL.fullmatch(command)
        if found is None:
            raise ScriptError(f"line {number}: {command!r} is no evaluation")
        made = Evaluation(found["text"], number, 0 if found["at"] is None else duration_ms(found["at"]))
        if found["from"] is not None:
            made.range_ms = (duration_ms(found["from"]), duration_ms(found["to"]), duration_ms(found["step"]))
        old = (found["old"] or "").lower()
        made.fails, made.ordered = old == "fail", old == "ordered"
        if old in ("warn", "info"):
            (made.warn if old == "warn" else made.info).append("")
        for line in block:
            self._expect(line, made)
        return made

    def _expect(self, line: str, made: Evaluation) -> None:
        words = line.split(None, 2)
        kind = words[1].lower() if words[0].lower() == "expect" and len(words) > 1 else ""
        rest = words[2] if len(words) > 2 else ""
        if line.lower().startswith("expected_fail_message"):
            made.fail_text = line.split(None, 1)[1]
        elif line.lower().startswith("expected_fail_regexp"):
            made.fail_pattern = line.split(None, 1)[1]
        elif kind == "fail":
            made.fails = True
            made.fail_text, made.fail_pattern = _message(rest, "msg:"), _message(rest, "regex:")
        elif kind in ("warn", "info"):
            (made.warn if kind == "warn" else made.info).append(rest)
        elif kind in ("no_warn", "no_info", "ordered"):
            setattr(made, kind, True)
        elif kind == "string":
            made.string = unquoted(rest.strip()) if rest.strip()[:1] in "\"'`" else rest.strip()
        elif kind == "range":
            found = _RANGE.match(line)
            if found is None:
                raise ScriptError(f"{line!r}: not understood")
            made.window = (duration_ms(found[1]), duration_ms(found[2]), duration_ms(found[3]))
        elif "{{" in line:
            made.native = True
        elif re.fullmatch(POINT, line):
            made.scalar = points_of(line)[0]
        else:
            labels, text = series_of(line)
            made.expected.append((labels, points_of(text)))

    # --- comparison

    def _check(self, one: Evaluation) -> None:
        try:
            if one.native:
                raise NotSupported("native histograms")
            self._compare(one)
        except NotSupported as problem:
            self.unsupported[problem.message] += 1
        except (Mismatch, PromqlError, ScriptError) as problem:
            self.failures.append(f"line {one.line}: {one.text}: {str(problem) or type(problem).__name__}")
        except Exception as problem:
            self.failures.append(f"line {one.line}: {one.text}: {type(problem).__name__}: {problem}")
        else:
            self.passed += 1
            if self._with_shards and not one.fails:
                self._check_shard(one)

    def _check_shard(self, one: Evaluation) -> None:
        """Compare the answer of a shard, if it holds the samples and all that the query asks for."""
        try:
            store = shard_of(self.samples)
        except ValueError:  # labels that Artimon does not take
            store = None
        if store is None:
            self.shards["unfit"] += 1
            return
        end_ms = one.at_ms if one.range_ms is None else one.range_ms[1]
        now_ms = max(end_ms, *(time for points in self.samples.series.values() for time in points)) + 1
        start_ms, step_ms = (None, 0) if one.range_ms is None else (one.range_ms[0], one.range_ms[2])
        try:
            found = query_store(one.text, store, now_ms, start_ms=start_ms, end_ms=end_ms, step_ms=step_ms)
            if any("memory" in warning for warning in found.warnings):
                self.shards["unfit"] += 1
                return
            self._compare_answer(one, found)
        except Exception as problem:
            self.failures.append(f"line {one.line}: on a shard: {one.text}: {problem}")
            self.shards["failed"] += 1
        else:
            self.shards["passed"] += 1

    def _compare(self, one: Evaluation) -> None:
        try:
            found = self._answer(one)
        except NotSupported:
            raise
        except PromqlError as problem:
            if not one.fails:
                raise
            if one.fail_text and one.fail_text.strip() != problem.message:
                raise Mismatch(f"failed with {problem.message!r}") from None
            if one.fail_pattern and not re.search(one.fail_pattern, problem.message):
                raise Mismatch(f"failed with {problem.message!r}") from None
            return
        if one.fails:
            raise Mismatch("did not fail")
        self._compare_answer(one, found)

    def _compare_answer(self, one: Evaluation, found: PromqlResult) -> None:
        self._compare_remarks(one, found)
        if one.string is not None:
            if found.text != one.string:
                raise Mismatch(f"gave {found.text!r}")
        elif one.scalar is not None:
            if found.type not in ("scalar", "matrix") or not all(same(v, one.scalar) for v in found.values[0].tolist()):
                raise Mismatch(f"gave {found.values.tolist()}")
        else:
            self._compare_series(one, found)

    def _answer(self, one: Evaluation) -> PromqlResult:
        if one.range_ms is not None:
            return range_query(one.text, *one.range_ms, self.samples)
        return instant_query(one.text, one.at_ms, self.samples)

    def _compare_remarks(self, one: Evaluation, found: PromqlResult) -> None:
        for what, wanted, none, told in (
            ("warning", one.warn, one.no_warn, found.warnings),
            ("remark", one.info, one.no_info, found.infos),
        ):
            if none and told:
                raise Mismatch(f"gave an unexpected {what}: {told}")
            for text in wanted:
                message, pattern = _message(text, "msg:"), _message(text, "regex:")
                if not told or (message and message not in told):
                    raise Mismatch(f"lacks the {what} {text!r}: {told}")
                if pattern and not any(re.search(pattern, line) for line in told):
                    raise Mismatch(f"lacks the {what} {text!r}: {told}")

    def _compare_series(self, one: Evaluation, found: PromqlResult) -> None:
        times = [one.at_ms]
        grid = one.range_ms or one.window
        if grid is not None:
            times = list(range(grid[0], grid[1] + 1, grid[2]))
        made = {tuple(sorted(labels.items())): dict(points) for labels, points in found.series()}
        wanted = {
            tuple(sorted(labels.items())): {t: v for t, v in zip(times, values, strict=False) if v is not None}
            for labels, values in one.expected
        }
        wanted = {key: points for key, points in wanted.items() if points}
        if one.ordered and list(made) != list(wanted):
            raise Mismatch(f"gave the order {list(made)}")
        if made.keys() != wanted.keys():
            raise Mismatch(f"gave {made}")
        for key, points in wanted.items():
            here = made[key]
            if here.keys() != points.keys() or not all(same(here[t], v) for t, v in points.items()):
                raise Mismatch(f"gave {dict(key)}: {here}")


def _histogram_of(labels: Labels) -> Labels:
    """Return the labels of the native histogram that a series of a classic one makes too."""
    name = re.sub("_(bucket|count|sum)$", "", labels.get("__name__", ""))
    return {**{key: value for key, value in labels.items() if key != "le"}, "__name__": name}


def _message(text: str, kind: str) -> str:
    return text[len(kind) :].strip() if text.lower().startswith(kind) else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 all passed, 1 an evaluation failed, 2 a script cannot be read."""
    asked = argparse.ArgumentParser("./scripts/promqltest", description=__doc__)
    asked.add_argument("files", nargs="+", type=Path)
    asked.add_argument("--shards", action="store_true", help="also ask a shard, where the points fit its finest level")
    asked.add_argument("--json", action="store_true", help="one line a file")
    options, code = asked.parse_args(arguments), 0
    for path in options.files:
        try:
            script = Script(path.read_text(), options.shards)
            script.run()
        except (OSError, ScriptError) as problem:
            print(f"promqltest: {path}: {problem}", file=sys.stderr)
            code = 2
            continue
        unsupported = sum(script.unsupported.values())
        counts = {"passed": script.passed, "failed": len(script.failures), "unsupported": unsupported}
        if options.shards:
            counts |= {f"shards_{what}": number for what, number in script.shards.items()}
        if options.json:
            print(json.dumps({"file": str(path), **counts}))
        else:
            print(f"{path}: " + ", ".join(f"{number} {what}" for what, number in counts.items()))
        for failure in script.failures:
            print(f"  FAILED {failure}", file=sys.stderr)
        for reason, number in script.unsupported.items():
            print(f"  unsupported ({number}): {reason}", file=sys.stderr)
        code = code or (1 if script.failures else 0)
    return code


if __name__ == "__main__":
    sys.exit(main())
