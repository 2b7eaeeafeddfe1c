"""YAML as a tree in which every node knows its place. Built from the parser's events: nothing is ever constructed.

Every scalar stays the text that stands in the file (`no` is "no", `010` is "010"). Anchors, aliases and tags are
refused, sizes and depth are bounded, and a key that stands twice is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from alerts.state.errors import Problem, RuleFileError

MAX_BYTES = 4 * 1024 * 1024
MAX_NODES = 500_000
MAX_DEPTH = 8
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Node:
    """Where a node begins, lines and columns from 1."""

    line: int
    column: int


@dataclass(slots=True)
class Text(Node):
    """A scalar. `raw` is how it stands in the file, from its first character to its last."""

    value: str
    raw: str
    plain: bool
    """Written without quotes and not as a block: an empty one means that nothing was written."""


@dataclass(slots=True)
class Items(Node):
    """A list."""

    nodes: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Fields(Node):
    """A mapping: key nodes by their text, and values by the same."""

    keys: dict[str, Text] = field(default_factory=dict)
    values: dict[str, Node] = field(default_factory=dict)


def read_tree(text: str, file: str) -> Node | None:
    """The one document of `text`, None if it is empty; RuleFileError says what is wrong and where."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise RuleFileError([Problem(file, 0, 0, f"more than {MAX_BYTES} bytes: split the file")])
    try:
        return _Builder(text, file).build()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        what = " ".join(part for part in (error.context, error.problem) if part)
        raise RuleFileError([Problem(file, line, column, f"no YAML: {what}{_hint(text, line)}")]) from None
    except (yaml.YAMLError, UnicodeError) as error:
        said = " ".join(str(error).split())[:200]
        raise RuleFileError([Problem(file, 0, 0, f"no YAML: {said}; save it as plain UTF-8 text")]) from None


def _hint(text: str, line: int) -> str:
    """The usual reason: an operator that YAML takes for its own mark."""
    near = text.splitlines()[max(0, line - 2) : line]
    if any(": >" in found or ": !" in found or ": =" in found for found in near):
        return '; put conditions in quotes, as in threshold: "> 5"'
    if any("\t" in found[: len(found) - len(found.lstrip())] for found in near):
        return "; indent with spaces, not with tabs"
    return ""


class _Builder:
    """Turns events into nodes with a stack of its own, so that depth is a number and not recursion."""

    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file
        self._lines = text.splitlines(keepends=True)
        self._open: list[tuple[Node, Text | None]] = []  # containers, each with the key that waits for its value
        self._root: Node | None = None
        self._count = 0

    def build(self) -> Node | None:
        documents = 0
        for event in self._events():
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._problem(event, "a second document: keep one document in a file, without ---")
            elif isinstance(event, yaml.NodeEvent):
                self._node(event)
            elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
                self._open.pop()
        root = self._root
        return None if isinstance(root, Text) and root.plain and not root.value else root

    def _events(self) -> Iterator[Any]:
        return iter(yaml.parse(self._text, Loader=_LOADER))

    def _problem(self, event: Any, text: str) -> RuleFileError:
        mark = event.start_mark
        return RuleFileError([Problem(self._file, mark.line + 1, mark.column + 1, text)])

    def _node(self, event: Any) -> None:
        self._count += 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise self._problem(event, "anchors and aliases (& and *) are not allowed: write it out")
        if event.tag is not None:
            raise self._problem(event, f"the tag {event.tag} is not allowed; put a condition with ! in quotes")
        if self._count > MAX_NODES:
            raise self._problem(event, f"more than {MAX_NODES} values: split the file")
        if len(self._open) >= MAX_DEPTH:
            raise self._problem(event, f"nested more than {MAX_DEPTH} deep: a rule file is a flat thing")
        self._place(event, self._made(event))

    def _made(self, event: Any) -> Node:
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        if isinstance(event, yaml.SequenceStartEvent):
            return Items(line, column)
        if isinstance(event, yaml.MappingStartEvent):
            return Fields(line, column)
        return Text(line, column, event.value, self._raw(event), event.style is None)

    def _raw(self, event: Any) -> str:
        first, last = event.start_mark, event.end_mark
        lines = self._lines[first.line : last.line + 1]
        if last.line - first.line < len(lines):
            lines[-1] = lines[-1][: last.column]
        if lines:
            lines[0] = lines[0][first.column :]
        return "".join(lines)

    def _place(self, event: Any, node: Node) -> None:
        """Put a node where it belongs: as a key, as the value of the key that waits, or into the list."""
        if not self._open:
            self._root = node
        else:
            owner, key = self._open[-1]
            if isinstance(owner, Items):
                owner.nodes.append(node)
            elif isinstance(owner, Fields):
                if key is None:
                    self._key(event, owner, node)
                    return
                owner.values[key.value] = node
                self._open[-1] = (owner, None)
        if not isinstance(node, Text):
            self._open.append((node, None))

    def _key(self, event: Any, owner: Fields, node: Node) -> None:
        if not isinstance(node, Text):
            raise self._problem(event, "a key must be a word, not a list or mapping")
        if node.value in owner.keys:
            first = owner.keys[node.value]
            raise self._problem(event, f"{node.value!r} stands here a second time, first in line {first.line}")
        owner.keys[node.value] = node
        self._open[-1] = (owner, node)
