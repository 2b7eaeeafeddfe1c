"""Configuration files (YAML, TOML, JSON) as plain data with the position of every element.

Limits on size, depth and number of elements are checked before any data is built. YAML is read from parser events:
tags, anchors and aliases are refused, and every scalar stays the text of the file (`no` is "no", `010` is "010").
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from artimon.runtime.config_model import Steps, dotted_path, explain

MAX_BYTES = 4 << 20
"""Size limit of a file in bytes: 20,000 alert rules take 3 MB."""
MAX_ELEMENTS = 500_000
MAX_DEPTH = 16
MAX_PROBLEMS = 50
"""Limit of the problems reported at once."""
FileFormat = Literal["yaml", "toml", "json"]
M = TypeVar("M", bound=BaseModel)

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BARE = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"({_BARE}(?:\s*\.\s*{_BARE})*)"
_TOML = re.compile(rf"^\s*(?:(\[\[?)\s*{_DOTTED}\s*\]\]?\s*(?:#.*)?$|{_DOTTED}\s*=)")
_STEP = re.compile(_BARE)
_LONG = re.compile(r'"""|\'\'\'')
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)")


@dataclass(frozen=True, slots=True, order=True)
class ConfigProblem:
    """Printed as `file:line:column: text`. Line and column count from 1; line 0 means data without a text."""

    file: str
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.text}"


class ConfigFileError(ValueError):
    """Invalid configuration. `problems` are sorted by position, at most 50."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        super().__init__(problems)
        self.problems = list(problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


@dataclass(slots=True)
class Element:
    """Position of a value and of its key. `start` and `end` delimit a scalar in the text of a YAML or JSON file."""

    line: int
    column: int
    value: str | list[Element] | dict[str, Element]
    key: Element | None = None
    start: int = 0
    end: int = 0


@dataclass(frozen=True)
class ConfigFile:
    """Data of one configuration file. `root` is None for data that has no text."""

    file: str
    data: Any
    root: Element | None = None
    text: str = ""

    def validate(self, model: type[M], **context: Any) -> M:
        """Return the data as a model. Validators get `context` as `info.context`. Raises ConfigFileError."""
        try:
            return model.model_validate(self.data, context=context)
        except ValidationError as error:
            found = sorted({self._problem(one) for one in error.errors(include_url=False)})
            raise ConfigFileError(found[:MAX_PROBLEMS]) from None

    def without(self, keys: Sequence[str]) -> ConfigFile:
        """Return the file without some keys of its top level, which belong to another reader."""
        if not isinstance(self.data, dict) or not keys:
            return self
        return replace(self, data={key: value for key, value in self.data.items() if key not in keys})

    def error(self, text: str, *path: str | int) -> ConfigFileError:
        """Return an error at a path, for checks outside of a model."""
        where = dotted_path(path)
        return ConfigFileError([ConfigProblem(self.file, *self.position(path), f"{where}: {text}" if where else text)])

    def position(self, path: Steps, offset: int | None = None) -> tuple[int, int]:
        """Return line and column of the element at `path`, else of its nearest ancestor.

        A last step "[key]" selects the key. `offset` is a character of a scalar's value. Its position is exact in
        plain and quoted scalars without escapes, and in blocks; else it is that of the scalar."""
        if self.root is None:
            return 0, 0
        element = self.root
        for step in path:
            if isinstance(element.value, dict) and step in element.value:
                element = element.value[str(step)]
            elif isinstance(element.value, list) and isinstance(step, int) and step < len(element.value):
                element = element.value[step]
            elif step == "[key]" and element.key is not None:
                element = element.key
        if offset is not None and isinstance(element.value, str):
            return _inside(element, self.text[element.start : element.end], offset)
        return element.line, element.column

    def _problem(self, error: Any) -> ConfigProblem:
        detail = explain(error)
        line, column = self.position((*error["loc"], "[key]") if detail.of_key else error["loc"], detail.offset)
        text = detail.text
        if detail.first is not None and self.root is not None:
            text += f", first in line {self.position(detail.first)[0]}"
        where = dotted_path(error["loc"])
        return ConfigProblem(self.file, line, column, f"{where}: {text}" if where else text)


def read_config_text(file: Path | Traversable, shown: str = "") -> str:
    """Return the text of a file. Raises OSError, and ConfigFileError for a file that is too large or not UTF-8."""
    shown = shown or str(file)
    with file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _too_large(shown)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise ConfigFileError([ConfigProblem(shown, line, column, "not UTF-8: save the file as UTF-8")]) from None


def read_config(file: Path | Traversable, shown: str = "", form: FileFormat | None = None) -> ConfigFile:
    """Return the content of a file; the suffix determines its form. Raises ConfigFileError, also for a missing file."""
    shown = shown or str(file)
    forms: dict[str, FileFormat] = {".json": "json", ".toml": "toml"}
    try:
        text = read_config_text(file, shown)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigFileError(
            [ConfigProblem(shown, 1, 1, f"cannot be read: {reason}; check path and permissions")]
        ) from None
    return parse_config(text, shown, form or forms.get(Path(shown).suffix, "yaml"))


def parse_config(text: str, file: str, form: FileFormat = "yaml") -> ConfigFile:
    """Return the content of a text; an empty YAML document is {}. Raises ConfigFileError."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _too_large(file)
    try:
        if form == "toml":
            return ConfigFile(file, tomllib.loads(text), _toml_tree(text), text)
        if form == "json":
            root = _json_tree(text, file)
            return ConfigFile(file, json.loads(text), root, text)
        root = _YamlTree(text, file).build()
        return ConfigFile(file, _plain(root), root, text)
    except json.JSONDecodeError as error:
        raise ConfigFileError([ConfigProblem(file, error.lineno, error.colno, f"not JSON: {error.msg}")]) from None
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column (\d+)\)$", str(error))
        place = (int(found[1]), int(found[2])) if found else (text.count("\n") + 1, 1)
        said = str(error)[: found.start()].strip() if found else str(error)
        raise ConfigFileError([ConfigProblem(file, *place, f"not TOML: {said}")]) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = _within(text, mark.line + 1, mark.column + 1) if mark else (1, 1)
        said = " ".join(part for part in (error.context, error.problem) if part)
        raise ConfigFileError([ConfigProblem(file, line, column, f"not YAML: {said}{_hint(text, line)}")]) from None
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        said = f"not {form.upper()}: {' '.join(str(error).split()):.200}; save it as plain UTF-8 text"
        raise ConfigFileError([ConfigProblem(file, 1, 1, said)]) from None


def _within(text: str, line: int, column: int) -> tuple[int, int]:
    """Return the position, moved to the end of the text if libyaml reports the line after the last one."""
    lines = text.splitlines() or [""]
    return (line, column) if line <= len(lines) else (len(lines), len(lines[-1]) + 1)


def _too_large(file: str) -> ConfigFileError:
    return ConfigFileError([ConfigProblem(file, 1, 1, f"more than {MAX_BYTES} bytes: split the file")])


def _hint(text: str, line: int) -> str:
    """Return a hint at the usual cause of a YAML error near a line: an operator that is a YAML indicator, or a tab."""
    near = text.splitlines()[max(0, line - 2) : line]
    if any(": >" in found or ": !" in found or ": =" in found for found in near):
        return '; put conditions in quotes, as in threshold: "> 5"'
    if any("\t" in found[: len(found) - len(found.lstrip())] for found in near):
        return "; indent with spaces, not with tabs"
    return ""


def _plain(element: Element) -> Any:
    """Return the data of a YAML tree. The recursion is bounded by MAX_DEPTH."""
    if isinstance(element.value, list):
        return [_plain(one) for one in element.value]
    if isinstance(element.value, dict):
        return {key: _plain(one) for key, one in element.value.items()}
    return element.value


class _YamlTree:
    """Builder of elements from parser events, with a stack instead of recursion."""

    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file
        self._documents: list[Element] = []
        self._open = [Element(1, 1, self._documents)]
        self._keys: list[Element | None] = [None]
        """Key without its value yet, for each open container."""
        self._count = 0

    def build(self) -> Element:
        events: Iterator[Any] = iter(yaml.parse(self._text, Loader=_LOADER))
        for event in events:
            if isinstance(event, yaml.NodeEvent):
                self._add(event, *_start(event))
            elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
                self._open.pop()
                self._keys.pop()
            elif isinstance(event, yaml.DocumentStartEvent) and self._documents:
                raise self._error(*_start(event), "a second document: keep one document in a file, without ---")
        root = self._documents[0] if self._documents else Element(1, 1, "")
        return Element(1, 1, {}) if root.value == "" and root.start == root.end else root

    def _error(self, line: int, column: int, text: str) -> ConfigFileError:
        return ConfigFileError([ConfigProblem(self._file, line, column, text)])

    def _add(self, event: Any, line: int, column: int) -> None:
        self._count += 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise self._error(line, column, "anchors and aliases (& and *) are not allowed: write it out")
        if event.tag is not None:
            raise self._error(line, column, f"the tag {event.tag} is not allowed; put a text with ! in quotes")
        if self._count > MAX_ELEMENTS:
            raise self._error(line, column, f"more than {MAX_ELEMENTS} values: split the file")
        if len(self._open) > MAX_DEPTH:
            raise self._error(line, column, f"nested more than {MAX_DEPTH} deep: flatten it")
        if isinstance(event, yaml.ScalarEvent):
            self._place(Element(line, column, event.value, None, *_span(event)))
        else:
            container = Element(line, column, [] if isinstance(event, yaml.SequenceStartEvent) else {})
            self._place(container)
            self._open.append(container)
            self._keys.append(None)

    def _place(self, element: Element) -> None:
        """Append to the open list, or store as key or value of the open mapping."""
        owner, key = self._open[-1].value, self._keys[-1]
        if isinstance(owner, list):
            owner.append(element)
        elif isinstance(owner, dict) and key is None:
            self._keys[-1] = self._checked(element, owner)
        elif isinstance(owner, dict) and key is not None:
            element.key, self._keys[-1] = key, None
            owner[str(key.value)] = element

    def _checked(self, key: Element, owner: dict[str, Element]) -> Element:
        if not isinstance(key.value, str):
            raise self._error(key.line, key.column, "a key must be a word, not a list or mapping")
        first = owner.get(key.value)
        if first is not None and first.key is not None:
            text = f"{key.value!r:.80} is defined a second time, first in line {first.key.line}"
            raise self._error(key.line, key.column, text)
        return key


def _start(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _span(event: Any) -> tuple[int, int]:
    return event.start_mark.index, event.end_mark.index


def _json_tree(text: str, file: str) -> Element:
    """Return the elements of a JSON text, read as YAML with masked escapes. A text that YAML refuses (long keys) has no
    positions."""
    try:
        return _YamlTree(_ESCAPE.sub(lambda found: "x" * len(found[0]), text), file).build()
    except yaml.YAMLError:
        return Element(1, 1, "")


def _toml_tree(text: str) -> Element:
    """Return the elements of tables and keys of a valid TOML text. Values have the position of their key."""
    root = table = Element(1, 1, {})
    quotes = ""
    for number, line in enumerate(text.splitlines(), 1):
        if quotes:
            quotes = "" if quotes in line else quotes
        elif found := _TOML.match(line):
            names = [step.strip("\"'") for step in _STEP.findall(found[2] or found[3])]
            column = found.start(1 if found[1] else 3) + 1
            if found[1]:
                table = _place_toml(root, names, number, column, many=found[1] == "[[")
            else:
                _place_toml(table, names, number, column)
                marks = _LONG.findall(line)
                quotes = marks[0] if len(marks) % 2 else ""
    return root


def _place_toml(element: Element, names: Sequence[str], line: int, column: int, many: bool = False) -> Element:
    """Return the element below `element`, created if absent. `many`: append a table to an array of tables."""
    for name in names:
        if isinstance(element.value, list):
            element = element.value[-1]
        if isinstance(element.value, dict):
            element = element.value.setdefault(name, Element(line, column, {}))
    if many:
        if not isinstance(element.value, list):
            element.value = []
        element.value.append(Element(line, column, {}))
        return element.value[-1]
    return element


def _inside(scalar: Element, raw: str, offset: int) -> tuple[int, int]:
    """Return the position of the character `offset` of a scalar that is written as `raw` in the file."""
    value = str(scalar.value)
    offset = max(0, min(offset, len(value) - 1))
    inline = raw.find(value)
    if inline >= 0 and "\n" not in raw[: inline + len(value)]:
        return scalar.line, scalar.column + inline + offset
    return _in_block(scalar, value, raw.split("\n"), offset) or (scalar.line, scalar.column)


def _in_block(scalar: Element, value: str, raw: list[str], offset: int) -> tuple[int, int] | None:
    """Return the position by matching the lines of the value with the lines of the file; None if they differ."""
    before, row, line = value[:offset].split("\n"), -1, ""
    for line in value.split("\n")[: len(before)]:
        row = next((at for at in range(row + 1, len(raw)) if line.strip() in raw[at]), len(raw))
    if row >= len(raw) or not line.strip() or (found := raw[row].find(line)) < 0:
        return None
    indent = scalar.column if row == 0 else 1
    return scalar.line + row, indent + found + len(before[-1])
