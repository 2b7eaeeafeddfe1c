"""Routing file in the form of Alertmanager's configuration: routes, receivers, inhibition and time intervals.

Keys of Alertmanager that have no counterpart here are named with their position, and left out. docs/alerts.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, model_validator

from alerts.dispatch.inhibition import InhibitRule
from alerts.dispatch.matchers import MAX_MATCHERS, matcher, parse_matchers
from alerts.dispatch.routes import EscalationStep, Route, Routing, Timing, child_key
from alerts.dispatch.time_intervals import (
    Span,
    TimeInterval,
    parse_days,
    parse_minute,
    parse_months,
    parse_weekdays,
    parse_years,
)
from alerts.receivers.apprise_services import SERVICES
from alerts.receivers.receiver_kind import Integration, receiver_kinds
from alerts.state.rule import AlertsError
from artimon.model.select import Matcher
from artimon.runtime.config_file import ConfigFile, ConfigFileError, ConfigProblem, parse_config, read_config_text
from artimon.runtime.config_model import (
    Conversion,
    Section,
    Steps,
    Text,
    dotted_path,
    fault,
    parsed,
    raise_faults,
    repeated,
    split_unsupported,
    text_of,
    with_path,
)
from artimon.runtime.text import did_you_mean, parse_duration
from query_dsl.tree.calendar_units import parse_zone

MAX_ROUTES = 5_000
MAX_DEPTH = 20
MAX_ENTRIES = 1_000
MAX_STEPS = 10
MAX_WAIT_MS = 30 * 86_400_000
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def _milliseconds(text: str) -> int:
    found = 0 if re.fullmatch(r"0(ms|[smhdwy])?", text) else parse_duration(text)
    if found > MAX_WAIT_MS:
        raise ValueError(f"{text} is too long: at most 30d")
    return found


def _matchers(given: Any, info: ValidationInfo) -> tuple[Matcher, ...]:
    del info
    if not isinstance(given, list):
        raise ValueError('write a list, as in [severity="page"]')
    found: list[Matcher] = []
    for at, one in enumerate(given):
        with with_path(at):
            found += parse_matchers(text_of(one))
    if len(found) > MAX_MATCHERS:
        raise ValueError(f"{len(found)} matchers: at most {MAX_MATCHERS}")
    return tuple(found)


def _old_matchers(op: str) -> Conversion:
    def convert(given: Any, info: ValidationInfo) -> tuple[Matcher, ...]:
        del info
        if not isinstance(given, Mapping):
            raise ValueError("write a mapping of labels to values")
        # Alertmanager writes the anchors of old regular expressions into the keys of groups
        form = "^(?:{})$" if op == "=~" else "{}"
        return tuple(matcher(str(label), op, form.format(text_of(value))) for label, value in given.items())

    return Conversion(convert)


def _labels(given: Any, info: ValidationInfo) -> tuple[str, ...]:
    del info
    if not isinstance(given, list):
        raise ValueError("write a list of labels")
    for at, one in enumerate(given):
        if not (isinstance(one, str) and (_LABEL.fullmatch(one) or one == "...")):
            raise_faults([fault(f"{one!r:.80} is no label: use letters, digits and _", at)])
    return tuple(dict.fromkeys(given))


def _spans(parse: Any) -> Any:
    return tuple[Annotated[Span, parsed(parse, blank=False)], ...]


Duration = Annotated[int, parsed(_milliseconds, blank=False)]
Matchers = Annotated[tuple[Matcher, ...], Conversion(_matchers)]
LabelNames = Annotated[tuple[str, ...], Conversion(_labels)]


class _TimeRange(Section):
    start_time: Annotated[int, parsed(parse_minute)]
    end_time: Annotated[int, parsed(parse_minute)]

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.start_time >= self.end_time:
            raise_faults([fault("the start is not before the end: write two ranges for a time over midnight")])
        return self


class _Interval(Section):
    times: tuple[_TimeRange, ...] = Field(default=(), max_length=MAX_ENTRIES)
    weekdays: _spans(parse_weekdays) = ()  # type: ignore[valid-type]
    days_of_month: _spans(parse_days) = ()  # type: ignore[valid-type]
    months: _spans(parse_months) = ()  # type: ignore[valid-type]
    years: _spans(parse_years) = ()  # type: ignore[valid-type]
    location: Annotated[str, parsed(lambda text: parse_zone(text, "location"), blank=False)] = "UTC"

    def build(self) -> TimeInterval:
        times = tuple((one.start_time, one.end_time) for one in self.times)
        return TimeInterval(times, self.weekdays, self.days_of_month, self.months, self.years, self.location)


class _NamedIntervals(Section):
    name: Text
    time_intervals: tuple[_Interval, ...] = Field(default=(), max_length=MAX_ENTRIES)


class _StepSection(Section):
    after: Duration
    receiver: Text


class _RouteSection(Section):
    """Route as written. Values that are not given are those of the parent."""

    receiver: Text | None = None
    group_by: LabelNames | None = None
    group_wait: Duration | None = None
    group_interval: Duration | None = None
    repeat_interval: Duration | None = None
    matchers: Matchers = ()
    match: Annotated[tuple[Matcher, ...], _old_matchers("=")] = ()
    match_re: Annotated[tuple[Matcher, ...], _old_matchers("=~")] = ()
    passes_on: bool = Field(default=False, alias="continue")
    mute_time_intervals: tuple[Text, ...] = ()
    active_time_intervals: tuple[Text, ...] = ()
    escalation: tuple[_StepSection, ...] | None = Field(default=None, max_length=MAX_STEPS)
    routes: tuple[_RouteSection, ...] = Field(default=(), max_length=MAX_ROUTES)

    def build(self, parent: Route, root: bool = False) -> Route:
        """Return the route below a parent. The root has no parent, but defaults."""
        matchers = (*self.match, *self.match_re, *self.matchers)
        before = parent.timing
        timing = Timing(
            before.wait_ms if self.group_wait is None else self.group_wait,
            before.interval_ms if self.group_interval is None else self.group_interval,
            before.repeat_ms if self.repeat_interval is None else self.repeat_interval,
        )
        group_by = parent.group_by if self.group_by is None else None if "..." in self.group_by else self.group_by
        steps = parent.escalation
        if self.escalation is not None:
            steps = tuple(EscalationStep(one.after, one.receiver) for one in self.escalation)
        made = Route(
            self.receiver or parent.receiver,
            group_by,
            timing,
            matchers,
            self.passes_on,
            self.mute_time_intervals,
            self.active_time_intervals,
            key=parent.key if root else child_key(parent.key, matchers),
            escalation=steps,
        )
        children = tuple(child.build(made) for child in self.routes)
        return replace(made, routes=children)


class _InhibitSection(Section):
    source_matchers: Matchers = ()
    source_match: Annotated[tuple[Matcher, ...], _old_matchers("=")] = ()
    source_match_re: Annotated[tuple[Matcher, ...], _old_matchers("=~")] = ()
    target_matchers: Matchers = ()
    target_match: Annotated[tuple[Matcher, ...], _old_matchers("=")] = ()
    target_match_re: Annotated[tuple[Matcher, ...], _old_matchers("=~")] = ()
    equal: LabelNames = ()

    def build(self) -> InhibitRule:
        source = (*self.source_match, *self.source_match_re, *self.source_matchers)
        target = (*self.target_match, *self.target_match_re, *self.target_matchers)
        return InhibitRule(source, target, self.equal)


def _integrations(given: Any, info: ValidationInfo) -> tuple[Integration, ...]:
    """Return the integrations of a receiver, each read by its kind."""
    if not isinstance(given, Mapping):
        raise ValueError("write a mapping")
    forms = {key: form for kind in receiver_kinds().values() for key, form in kind.sections.items()}
    found: list[Integration] = []
    for key, entries in given.items():
        if key == "name":
            continue
        if key not in forms:
            raise_faults([fault(f"unknown key{did_you_mean(str(key), forms)}", key, of_key=True)])
        if not isinstance(entries, list):
            raise_faults([fault("write a list", key)])
        for at, entry in enumerate(entries[:MAX_ENTRIES]):
            with with_path(key, at):
                section = forms[key].model_validate(entry, context=info.context)
            found += section.build()
    return tuple(found)


class _ReceiverSection(Section):
    """Receiver with its integrations by kind."""

    name: Text
    integrations: tuple[Integration, ...] = ()

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, data: Any, handler: Any, info: ValidationInfo) -> Any:
        integrations = _integrations(data, info)
        made = handler({"name": data["name"]} if "name" in data else {})
        return made.model_copy(update={"integrations": integrations})


class _RoutingDocument(Section):
    route: _RouteSection
    receivers: tuple[_ReceiverSection, ...] = Field(max_length=MAX_ENTRIES)
    inhibit_rules: tuple[_InhibitSection, ...] = Field(default=(), max_length=MAX_ENTRIES)
    time_intervals: tuple[_NamedIntervals, ...] = Field(default=(), max_length=MAX_ENTRIES)
    mute_time_intervals: tuple[_NamedIntervals, ...] = Field(default=(), max_length=MAX_ENTRIES)

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = ((f"receiver {one.name!r}", ("receivers", at, "name")) for at, one in enumerate(self.receivers))
        raise_faults(repeated(names))
        root = self.route
        if root.receiver is None:
            raise_faults([fault("the root route needs a receiver", "route")])
        if root.matchers or root.match or root.match_re:
            raise_faults([fault("the root route gets all alerts: move the matchers to a child", "route")])
        raise_faults(list(self._unknown_names(root, ("route",))))
        return self

    def _unknown_names(self, route: _RouteSection, path: tuple[str | int, ...]) -> Iterator[Any]:
        receivers = [one.name for one in self.receivers]
        intervals = [one.name for one in (*self.time_intervals, *self.mute_time_intervals)]
        if route.receiver is not None and route.receiver not in receivers:
            yield fault(f"unknown receiver{did_you_mean(route.receiver, receivers)}", *path, "receiver")
        for at, step in enumerate(route.escalation or ()):
            if step.receiver not in receivers:
                hint = did_you_mean(step.receiver, receivers)
                yield fault(f"unknown receiver{hint}", *path, "escalation", at, "receiver")
        for key in ("mute_time_intervals", "active_time_intervals"):
            for at, name in enumerate(getattr(route, key)):
                if name not in intervals:
                    yield fault(f"unknown time interval{did_you_mean(name, intervals)}", *path, key, at)
        for at, child in enumerate(route.routes):
            yield from self._unknown_names(child, (*path, "routes", at))


def parse_routing(text: str, file: str, default: Routing) -> tuple[Routing, list[ConfigProblem]]:
    """Return the routing of a file on top of the receivers of rules, and a message for each key that is left out.
    Raises ConfigFileError."""
    parsed_file = parse_config(text, file)
    data, left_out = split_unsupported(parsed_file.data, _reason)
    document = replace(parsed_file, data=data).validate(_RoutingDocument)
    empty = [at for at, one in enumerate(document.receivers) if not one.integrations]
    for at in empty:
        if any(path[:2] == ("receivers", at) for path, _ in left_out):
            raise parsed_file.error(
                "none of the kinds of this receiver is supported: add one of those in docs/alerts.md", "receivers", at
            )
    root = document.route.build(Route(""), root=True)
    receivers = {one.name: one.integrations for one in document.receivers}
    rules = tuple(one.build() for one in document.inhibit_rules)
    named = (*document.time_intervals, *document.mute_time_intervals)
    intervals = {one.name: tuple(interval.build() for interval in one.time_intervals) for one in named}
    routing = Routing(default.default, {**default.receivers, **receivers}, root, rules, intervals)
    return routing, [_left_out(parsed_file, path, reason) for path, reason in left_out]


# ---- keys without a counterpart

_BY_OPTIONS = "the mail server is set by --smtp and --smtp-settings"
_UNSUPPORTED: Mapping[tuple[str, ...], str] = {
    ("global",): f"global settings have no effect: {_BY_OPTIONS}",
    ("templates",): "messages have a fixed form",
    **{
        ("receivers", kind): "this kind of receiver is not supported: use apprise_configs, mail or a webhook"
        for kind in ("sns_configs", "victorops_configs", "webex_configs", "wechat_configs")
    },
    **{
        ("receivers", "email_configs", key): _BY_OPTIONS
        for key in (
            "auth_identity", "auth_password", "auth_password_file", "auth_secret", "auth_username", "from", "hello",
            "require_tls", "smarthost", "tls_config",
        )
    },
    **{("receivers", "email_configs", key): "messages have a fixed form" for key in ("headers", "html", "text")},
    ("receivers", "webhook_configs", "http_config"): "webhooks are sent without credentials",
}  # fmt: skip
"""Path of keys, without places in lists -> reason."""


def _reason(keys: tuple[str, ...]) -> str | None:
    """Return why a key has no effect; None if it has one."""
    if len(keys) == 3 and keys[1] in SERVICES and keys[2] not in SERVICES[keys[1]].model_fields:
        return "messages have a fixed form"
    return _UNSUPPORTED.get(keys)


def _left_out(file: ConfigFile, path: Steps, reason: str) -> ConfigProblem:
    return ConfigProblem(file.file, *file.position((*path, "[key]")), f"{dotted_path(path)}: left out: {reason}")


def check_routing(path: Path) -> list[str]:
    """Return a message for each key of a file that is not supported and left out. Raises AlertsError if the file is not
    valid."""
    try:
        _, left_out = parse_routing(read_config_text(path, path.name), path.name, Routing(""))
    except OSError as error:
        raise AlertsError(f"{path}: cannot be read: {error.strerror}") from error
    except ConfigFileError as error:
        raise AlertsError(str(error)) from error
    return [str(one) for one in left_out]


class RoutingFile:
    """Reads a routing file again when it changes; the last valid version stays in force. Belongs to one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._signature: tuple[int, int, int] | None = None
        self._text = ""
        self.problems: list[str] = []

    @property
    def text(self) -> str:
        """Text of the version in force; "" while none was valid."""
        return self._text

    def apply(self, default: Routing) -> Routing:
        """Return the routing in force, with the receivers of rules from `default`; `default` itself while no version
        was valid."""
        if self._changed():
            self._read(default)
        return parse_routing(self._text, self._path.name, default)[0] if self._text else default

    def _changed(self) -> bool:
        try:
            stat = self._path.stat()
        except OSError as error:
            self.problems = [f"{self._path}: cannot be read: {error.strerror}; the routing in force stays"]
            return False
        signature = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        changed, self._signature = signature != self._signature, signature
        return changed

    def _read(self, default: Routing) -> None:
        try:
            text = read_config_text(self._path, self._path.name)
            _, left_out = parse_routing(text, self._path.name, default)
        except (ConfigFileError, OSError) as problem:
            self.problems = str(problem).splitlines()
        else:
            self._text, self.problems = text, [str(one) for one in left_out]
