"""The protocol of Jolokia: what is asked for by mapping rules, and the beans of its answers. Pure.

All is asked at once by POST, a `read` for each bean pattern of the rules, with the attributes that they name. Errors
come with HTTP 200: each answer has a status of its own. By GET a bean is asked for at a time; its name is then part of
a path, in which Jolokia has escapes of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from sources.base.errors import PollError
from sources.scrape.jmx.bean_answer import BeanAnswer
from sources.scrape.jmx.mapping_rules import BeanRule
from sources.scrape.jmx.name_patterns import BeanPattern, Pattern

RUNTIME = "java.lang:type=Runtime"
_START = ("StartTime", "Name")
_ERROR = "ERROR: "
"""So begins what Jolokia says instead of the value of an attribute that cannot be read (`ignoreErrors`)."""
_MISSING = 404
_WORTHLESS = ("AttributeNotFoundException", "UnsupportedOperationException")
"""What servers say of attributes that they do not have: a rule for another version of the server."""
_OPTIONS = {"ignoreErrors": "true", "canonicalNaming": "false"}


@dataclass(frozen=True, slots=True)
class Read:
    """One question: the attributes of the beans that fit a pattern; no `attributes` means all."""

    mbean: str
    attributes: tuple[str, ...]

    @property
    def pattern(self) -> bool:
        return "*" in self.mbean or "?" in self.mbean

    def body(self) -> dict[str, Any]:
        """As it stands in a POST."""
        asked = {"attribute": list(self.attributes)} if self.attributes else {}
        return {"type": "read", "mbean": self.mbean, **asked, "config": _OPTIONS}

    def path(self, base: str) -> str:
        """As a GET."""
        parts = ["read", self.mbean, *([",".join(self.attributes)] if self.attributes else [])]
        options = "&".join(f"{name}={value}" for name, value in _OPTIONS.items())
        return f"{base}/{'/'.join(quote(escaped(part), safe='!:=,*/') for part in parts)}?{options}"


def escaped(part: str) -> str:
    """A part of a path as Jolokia wants it: `!` before what would end it.

    >>> escaped('kafka:name="a/b"!')
    'kafka:name=!"a!/b!"!!'
    """
    return part.replace("!", "!!").replace("/", "!/").replace('"', '!"')


def reads(rules: Iterable[BeanRule]) -> tuple[Read, ...]:
    """What to ask for; the start of the process first, as in `rules.queries`."""
    wanted: dict[str, set[str] | None] = {RUNTIME: set(_START)}
    for rule in rules:
        name = object_name(rule.pattern)
        named = _attributes(rule)
        before = wanted.setdefault(name, set())
        wanted[name] = None if before is None or named is None else before | named
    return tuple(Read(name, tuple(sorted(named or ()))) for name, named in wanted.items())


def _attributes(rule: BeanRule) -> set[str] | None:
    """The attributes that a rule names; None if it wants all of them, or does not know their names."""
    firsts = [variable.path[0] for variable in rule.variables]
    if not all(first.literal for first in firsts):
        return None
    return {first.text for first in firsts} | set(rule.tags)


def object_name(pattern: BeanPattern) -> str:
    """The pattern as Java has it: `*` at each place."""
    properties = [f"{key}={_starred(value)}" for key, value in pattern.properties.items()]
    return f"{_starred(pattern.domain)}:{','.join([*properties, *(['*'] if pattern.more else [])])}"


def _starred(pattern: Pattern) -> str:
    return pattern.text if pattern.literal else "*".join(pattern.pieces)


def parse_bulk(data: bytes, asked: Sequence[Read]) -> BeanAnswer:
    """The beans of an answer to a POST of all questions. PollError `garbage` if it is none, `unauthorized`."""
    answer = BeanAnswer({})
    content = _json(data)
    if not isinstance(content, list) or len(content) != len(asked):
        _whole_error(content)
        raise PollError("garbage", f"no list of {len(asked)} answers; it begins {data[:40]!r}")
    for one, read in zip(content, asked, strict=True):
        _take(answer, one, read)
    _sure(answer, len(asked))
    return answer


def parse_singles(answers: Sequence[bytes], asked: Sequence[Read]) -> BeanAnswer:
    """As `parse_bulk`, of an answer for each question."""
    answer = BeanAnswer({})
    for data, read in zip(answers, asked, strict=True):
        one = _json(data)
        if len(read.attributes) == 1 and not read.pattern and isinstance(one, dict) and "value" in one:
            one = {**one, "value": {read.attributes[0]: one["value"]}}  # which a path with one attribute leaves out
        _take(answer, one, read)
    _sure(answer, len(asked))
    return answer


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PollError("garbage", f"no JSON: {error}; it begins {data[:40]!r}") from error


def _whole_error(content: Any) -> None:
    """One answer for all questions says that none was looked at."""
    if isinstance(content, dict) and content.get("status", 200) != 200:
        raise PollError(*_said(content))


def _said(one: Mapping[str, Any]) -> tuple[str, str]:
    status = one.get("status")
    reason = "unauthorized" if status in (401, 403) else "jolokia status"
    return reason, f"{status!r:.20}: {str(one.get('error', 'no reason given'))[:150]}"


def _take(answer: BeanAnswer, one: Any, read: Read) -> None:
    """The beans of one answer. A bean that the server does not have is no error."""
    if not isinstance(one, dict) or not isinstance(one.get("status"), int):
        answer.faults.add("bad bean", f"{read.mbean}: no status in {one!r:.80}")
        return
    if one["status"] == _MISSING:
        return
    if one["status"] != 200:
        reason, text = _said(one)
        answer.faults.add(reason, f"{read.mbean}: {text}")
        return
    value = one.get("value")
    beans = value if read.pattern else {read.mbean: value}
    if not isinstance(beans, dict):
        answer.faults.add("bad bean", f"{read.mbean}: no beans in {value!r:.80}")
        return
    for name, attributes in beans.items():
        if isinstance(attributes, dict):
            answer.beans.setdefault(name, {}).update(_good(name, attributes, answer))  # type: ignore[attr-defined]
        else:
            answer.faults.add("bad bean", f"{name}: no attributes in {attributes!r:.80}")


def _good(name: str, attributes: Mapping[str, Any], answer: BeanAnswer) -> dict[str, Any]:
    """The attributes that have values; of an attribute that could not be read the server says why."""
    good: dict[str, Any] = {}
    for attribute, value in attributes.items():
        if isinstance(value, str) and value.startswith(_ERROR):
            if not any(word in value for word in _WORTHLESS):
                answer.faults.add("attribute error", f"{name}: {attribute}: {value[len(_ERROR) :]}")
            continue
        good[attribute] = value
    return good


def _sure(answer: BeanAnswer, asked: int) -> None:
    """PollError if every question was refused: an agent whose policy forbids reading is no server that has nothing."""
    refused = sum(answer.faults.counts[reason] for reason in ("unauthorized", "jolokia status", "bad bean"))
    if not answer.beans and refused >= asked:
        reason = next(iter(answer.faults.examples))
        raise PollError(reason if reason != "bad bean" else "garbage", answer.faults.examples[reason])
