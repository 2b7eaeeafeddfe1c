"""Interceptors that match the text of an event. Patterns are RE2's, which take linear time on any text."""

from __future__ import annotations

from typing import Annotated, Any

import re2
from pydantic import AfterValidator

from pipeline.flows.event import Event
from pipeline.flows.interceptors.headers import PerEvent
from pipeline.flows.options import Options
from pipeline.flows.registry import Component


def _pattern(text: str) -> str:
    try:
        re2.compile(text)
    except re2.error as error:
        raise ValueError(f"not a valid RE2 pattern: {error}") from None
    return text


Pattern = Annotated[str, AfterValidator(_pattern)]


class FilterOptions(Options):
    """`exclude`: drop events that match instead of those that do not. `header`: match its value instead of the body."""

    pattern: Pattern
    exclude: bool = False
    header: str | None = None


class RegexFilter(PerEvent):
    """Passes or drops events by a pattern."""

    def __init__(self, options: FilterOptions) -> None:
        super().__init__()
        self._options = options
        self._find = re2.compile(options.pattern).search

    def event(self, event: Event) -> Event | None:
        found = self._find(_text(event, self._options.header)) is not None
        return event if found != self._options.exclude else None


class ExtractOptions(Options):
    """Named groups of `pattern` become headers, with `prefix` before their names."""

    pattern: Pattern
    prefix: str = ""
    header: str | None = None


class RegexExtract(PerEvent):
    """Adds headers from the text; an event that does not match passes unchanged."""

    def __init__(self, options: ExtractOptions) -> None:
        super().__init__()
        self._options = options
        self._find = re2.compile(options.pattern).search

    def event(self, event: Event) -> Event:
        found: Any = self._find(_text(event, self._options.header))
        if found is None:
            self.counts["unmatched"] += 1
            return event
        values = {self._options.prefix + k: v for k, v in found.groupdict().items() if v is not None}
        return event.with_headers(values)


def _text(event: Event, header: str | None) -> str:
    return event.headers.get(header, "") if header else event.body.decode("utf-8", "replace")


FILTER = Component("regex-filter", FilterOptions, lambda options, _: RegexFilter(options), outside={})
EXTRACT = Component("regex-extract", ExtractOptions, lambda options, _: RegexExtract(options), outside={})
