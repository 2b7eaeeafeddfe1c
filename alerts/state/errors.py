"""What is wrong with a rule file, said with its place so that its writer can mend it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """`file:line:column: text`; line and column count from 1 (0: the file as a whole)."""

    file: str
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.text}"


class RuleFileError(ValueError):
    """A rule file that cannot be used; `problems` are all that were found, in order of their places."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class AlertsError(RuntimeError):
    """The engine cannot run as it is configured; the text says what to change."""
