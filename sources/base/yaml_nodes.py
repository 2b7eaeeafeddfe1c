"""Walks the nodes of a YAML file; every error says file, line and column. Aliases are refused: they would let a small
file become a huge one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from sources.base.errors import PositionError

MAX_BYTES = 1 << 20
T = TypeVar("T")


def read_text(file: Path | Traversable, shown: str, error: type[PositionError]) -> str:
    """The text of a file of at most MAX_BYTES; `shown` is what errors call it. Raises `error`."""
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise error(shown, 1, 1, f"more than {MAX_BYTES} bytes")
        return data.decode()
    except (OSError, UnicodeDecodeError) as problem:
        raise error(shown, 1, 1, str(problem)) from problem


def compose(text: str, shown: str, error: type[PositionError]) -> yaml.Node | None:
    """The root of a file's text, None if it is empty. Raises `error`."""
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise error(shown, line, column, problem.problem or str(problem)) from problem
    except (yaml.YAMLError, RecursionError) as problem:
        raise error(shown, 1, 1, " ".join(str(problem).split())) from problem
    return root


class NodeReader:
    """Each method takes the node that it is about. Subclasses say what a file holds."""

    def __init__(self, shown: str, error: type[PositionError]) -> None:
        self._shown, self._error = shown, error

    def _choice(self, node: yaml.Node | None, choices: Mapping[str, T], default: T) -> T:
        if node is None:
            return default
        text = self._text(node)
        if text not in choices:
            self._fail(node, f"{text!r}: want {' or '.join(choices)}")
        return choices[text]

    def _positive(self, node: yaml.Node | None) -> int:
        if node is None:
            return 1
        number = self._checked(node, int)
        if not 0 < number < 1 << 62:
            self._fail(node, f"{number}: want a whole number above 0")
        return number

    def _checked(self, node: yaml.Node, parse: Callable[[str], T]) -> T:
        text = self._text(node)
        try:
            return parse(text)
        except ValueError as error:
            self._fail(node, str(error))

    def _text(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self._fail(node, f"want a text or a number, found a {_kind(node)}")
        return str(node.value)

    def _list(self, node: yaml.Node | None) -> list[yaml.Node]:
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            self._fail(node, f"want a list, found a {_kind(node)}")
        return list(node.value)

    def _pairs(self, node: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            self._fail(node, f"want `key: value`, found a {_kind(node)}")
        seen: set[str] = set()
        for key, _ in node.value:
            text = self._text(key)
            if text in seen:
                self._fail(key, f"{text!r} stands here twice")
            seen.add(text)
        return list(node.value)

    def _mapping(self, node: yaml.Node, allowed: Sequence[str], required: Sequence[str]) -> dict[str, yaml.Node]:
        keys: dict[str, yaml.Node] = {}
        for key, value in self._pairs(node):
            if self._text(key) not in allowed:
                self._fail(key, f"{self._text(key)!r} is not known here: there are {', '.join(allowed)}")
            keys[self._text(key)] = value
        for name in required:
            if name not in keys:
                self._fail(node, f"`{name}:` is missing")
        return keys

    def _refuse_aliases(self, root: yaml.Node) -> None:
        met: set[int] = set()
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if id(node) in met:
                self._fail(node, "an alias (*) stands for this: write it out at both places")
            met.add(id(node))
            if isinstance(node, yaml.MappingNode):
                waiting.extend(part for pair in node.value for part in pair)
            elif isinstance(node, yaml.SequenceNode):
                waiting.extend(node.value)

    def _fail(self, node: yaml.Node, text: str) -> NoReturn:
        mark: Any = node.start_mark
        raise self._error(self._shown, mark.line + 1, mark.column + 1, text)


def _kind(node: yaml.Node) -> str:
    names: dict[type[yaml.Node], str] = {yaml.SequenceNode: "list", yaml.MappingNode: "mapping"}
    return names.get(type(node), "text")
