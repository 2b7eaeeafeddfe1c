"""Protocol of Jolokia: requests for mapping rules, and the beans of the answers. Pure.

One POST has a `read` for each bean pattern of the rules, with the attributes that they name. Errors come with HTTP 200:
each answer has its own status. A GET requests one bean pattern; its name is part of the path, with Jolokia's own
escapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from sources.base.source_errors import PollError
from sources.scrape.jmx.jmx_response import BeanResponse, parse_json
from sources.scrape.jmx.mapping_file import BeanRule
from sources.scrape.jmx.name_patterns import BeanPattern, Pattern

RUNTIME = "java.lang:type=Runtime"
_START = ("StartTime", "Name")
_ERROR = "ERROR: "
"""Prefix of the text that replaces the value of an unreadable attribute (`ignoreErrors`)."""
_MISSING = 404
_IGNORED_ERRORS = ("AttributeNotFoundException", "UnsupportedOperationException")
"""Errors of attributes that the server lacks; ignored, as the rule is for another version of the server."""
_OPTIONS = {"ignoreErrors": "true", "canonicalNaming": "false"}


@dataclass(frozen=True, slots=True)
class JolokiaRead:
    """One request: attributes of the beans that match a pattern; no `attributes` means all."""

    mbean: str
    attributes: tuple[str, ...]

    @property
    def pattern(self) -> bool:
        return "*" in self.mbean or "?" in self.mbean

    def body(self) -> dict[str, Any]:
        """Return the request as an entry of a POST body."""
        asked = {"attribute": list(self.attributes)} if self.attributes else {}
        return {"type": "read", "mbean": self.mbean, **asked, "config": _OPTIONS}

    def path(self, base: str) -> str:
        """Return the request as the path of a GET."""
        parts = ["read", self.mbean, *([",".join(self.attributes)] if self.attributes else [])]
        options = "&".join(f"{name}={value}" for name, value in _OPTIONS.items())
        return f"{base}/{'/'.join(quote(escape_path(part), safe='!:=,*/') for part in parts)}?{options}"


def escape_path(part: str) -> str:
    """Escape a part of a path for Jolokia: `!` before `!`, `/` and `"`.

    >>> escape_path('kafka:name="a/b"!')
    'kafka:name=!"a!/b!"!!'
    """
    return part.replace("!", "!!").replace("/", "!/").replace('"', '!"')


def requests_for(rules: Iterable[BeanRule]) -> tuple[JolokiaRead, ...]:
    """Return the requests for the rules; the start time of the process comes first, as in `mapping_file.queries`."""
    wanted: dict[str, set[str] | None] = {RUNTIME: set(_START)}
    for rule in rules:
        name = object_name(rule.pattern)
        named = _attributes(rule)
        before = wanted.setdefault(name, set())
        wanted[name] = None if before is None or named is None else before | named
    return tuple(JolokiaRead(name, tuple(sorted(named or ()))) for name, named in wanted.items())


def _attributes(rule: BeanRule) -> set[str] | None:
    """Return the attributes that a rule names; None if it needs all, because a name has places."""
    firsts = [variable.path[0] for variable in rule.variables]
    if not all(first.literal for first in firsts):
        return None
    return {first.text for first in firsts} | set(rule.tags)


def object_name(pattern: BeanPattern) -> str:
    """Return the pattern as a Java ObjectName with `*` for each placeholder."""
    properties = [f"{key}={_starred(value)}" for key, value in pattern.properties.items()]
    return f"{_starred(pattern.domain)}:{','.join([*properties, *(['*'] if pattern.more else [])])}"


def _starred(pattern: Pattern) -> str:
    return pattern.text if pattern.literal else "*".join(pattern.pieces)


def parse_bulk(data: bytes, asked: Sequence[JolokiaRead]) -> BeanResponse:
    """Parse the answer to a POST of all requests. Raises PollError, e.g. `garbage` or `unauthorized`."""
    answer = BeanResponse({})
    content = parse_json(data)
    if not isinstance(content, list) or len(content) != len(asked):
        if isinstance(content, dict) and content.get("status", 200) != 200:  # the whole request failed
            raise PollError(*_said(content))
        raise PollError("garbage", f"no list of {len(asked)} answers; it begins {data[:40]!r}")
    for one, read in zip(content, asked, strict=True):
        _take(answer, one, read)
    _require_runtime(answer, len(asked))
    return answer


def parse_singles(answers: Sequence[bytes], asked: Sequence[JolokiaRead]) -> BeanResponse:
    """Parse separate answers to the requests, otherwise like `parse_bulk`."""
    answer = BeanResponse({})
    for data, read in zip(answers, asked, strict=True):
        one = parse_json(data)
        if len(read.attributes) == 1 and not read.pattern and isinstance(one, dict) and "value" in one:
            one = {**one, "value": {read.attributes[0]: one["value"]}}  # a GET of one attribute omits its name
        _take(answer, one, read)
    _require_runtime(answer, len(asked))
    return answer


def _said(one: Mapping[str, Any]) -> tuple[str, str]:
    status = one.get("status")
    reason = "unauthorized" if status in (401, 403) else "jolokia status"
    return reason, f"{status!r:.20}: {str(one.get('error', 'no reason given'))[:150]}"


def _take(answer: BeanResponse, one: Any, read: JolokiaRead) -> None:
    """Add the beans of one answer. A bean that the server lacks is not an error."""
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


def _good(name: str, attributes: Mapping[str, Any], answer: BeanResponse) -> dict[str, Any]:
    """Return the attributes that have values; add a fault for each unreadable one."""
    good: dict[str, Any] = {}
    for attribute, value in attributes.items():
        if isinstance(value, str) and value.startswith(_ERROR):
            if not any(word in value for word in _IGNORED_ERRORS):
                answer.faults.add("attribute error", f"{name}: {attribute}: {value[len(_ERROR) :]}")
            continue
        good[attribute] = value
    return good


def _require_runtime(answer: BeanResponse, asked: int) -> None:
    """Raise PollError if every request was refused: a policy that forbids reading must not look like no beans."""
    refused = sum(answer.faults.counts[reason] for reason in ("unauthorized", "jolokia status", "bad bean"))
    if not answer.beans and refused >= asked:
        reason = next(iter(answer.faults.examples))
        raise PollError(reason if reason != "bad bean" else "garbage", answer.faults.examples[reason])
