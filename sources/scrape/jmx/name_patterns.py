"""Patterns of the mapping rules: the place `<word>` matches any non-empty text and names it. Pure.

A bean's name is `domain:key=value,key=value` in any order of its keys; the place `<_>` is unnamed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import re2

MAX_PLACEHOLDERS = 3
"""Maximum places in one pattern."""
_PLACE = re.compile(r"<([a-z_]+)>")
_USE = re.compile(r"<(tag\.\w+|[a-z_]+)(?:\|([a-z]+))?>")


def camel(text: str) -> str:
    """Convert to the case of a Java method: `SendHeartbeat` -> `sendHeartbeat`."""
    return text[:1].lower() + text[1:]


def snake(text: str) -> str:
    """Convert to words joined by underscores: `WriteBlock` -> `write_block`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text).lower()


FILTERS: Mapping[str, Callable[[str], str]] = {"camel": camel, "snake": snake}


class PatternError(ValueError):
    """A pattern or template is invalid; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Text with places; without places it matches only itself."""

    text: str
    places: tuple[str, ...]
    regex: re2._Regexp[str] | None
    pieces: tuple[str, ...] = ()
    """Texts before, between and after the places."""

    @property
    def literal(self) -> bool:
        return self.regex is None

    def match(self, text: str) -> dict[str, str] | None:
        """Return the text at each named place, None if the pattern does not match."""
        if self.regex is None:
            return {} if text == self.text else None
        try:
            found = self.regex.fullmatch(text)
        except UnicodeEncodeError:  # a lone surrogate, which JSON can hold but a label cannot
            return None
        return dict(zip(self.places, found.groups(), strict=True)) if found else None


def parse_pattern(text: str) -> Pattern:
    """Parse a pattern. Raises PatternError."""
    pieces = _PLACE.split(text)
    places = [place for place in pieces[1::2] if place != "_"]
    if "<" in "".join(pieces[0::2]):
        raise PatternError(f"{text!r}: write a placeholder as <word>, in lower-case letters and _")
    if len(pieces) // 2 > MAX_PLACEHOLDERS:
        raise PatternError(f"{text!r}: at most {MAX_PLACEHOLDERS} placeholders")
    if len(set(places)) < len(places):
        raise PatternError(f"{text!r}: one name for two placeholders")
    if any(piece == "" for piece in pieces[2:-1:2]):
        raise PatternError(f"{text!r}: two placeholders need text between them")
    if len(pieces) == 1:
        return Pattern(text, (), None)
    parts = [re2.escape(p) if i % 2 == 0 else _group(p) for i, p in enumerate(pieces)]
    return Pattern(text, tuple(places), re2.compile(f"(?s){''.join(parts)}"), tuple(pieces[0::2]))


def _group(place: str) -> str:
    return ".+" if place == "_" else f"(?P<{place}>.+)"


@dataclass(frozen=True, slots=True)
class LabelTemplate:
    """Text in which `<word>` is replaced by the text at that place, `<word|camel>` by its filtered form."""

    pieces: tuple[tuple[str, str, str], ...]
    """(text, name of the place after it or "", its filter or "")."""

    @property
    def uses(self) -> frozenset[str]:
        return frozenset(name for _, name, _ in self.pieces if name)

    def render(self, found: Mapping[str, str]) -> str:
        """Fill the template; a missing tag is empty."""
        text = ""
        for before, name, filter_ in self.pieces:
            value = found.get(name, "") if name else ""
            text += before + (FILTERS[filter_](value) if filter_ else value)
        return text


def parse_template(text: str) -> LabelTemplate:
    """Parse a template. Raises PatternError."""
    pieces: list[tuple[str, str, str]] = []
    at = 0
    for found in _USE.finditer(text):
        filter_ = found[2] or ""
        if filter_ and filter_ not in FILTERS:
            raise PatternError(f"{text!r}: no filter {filter_}; there are {', '.join(FILTERS)}")
        pieces.append((text[at : found.start()], found[1], filter_))
        at = found.end()
    pieces.append((text[at:], "", ""))
    if "<" in "".join(before for before, _, _ in pieces):
        raise PatternError(f"{text!r}: write <word>, <word|filter> or <tag.Name>")
    return LabelTemplate(tuple(pieces))


def split_bean_name(name: str) -> tuple[str, dict[str, str]] | None:
    """Split a bean's name into domain and key properties, None if it is invalid. Quoted values keep their quotes.

    >>> split_bean_name("java.lang:type=MemoryPool,name=Eden Space")
    ('java.lang', {'type': 'MemoryPool', 'name': 'Eden Space'})
    """
    domain, colon, rest = name.partition(":")
    if not colon or not rest:
        return None
    properties: dict[str, str] = {}
    for part in _outside_quotes(rest):
        key, equals, value = part.partition("=")
        if not key or not equals or key in properties:
            return None
        properties[key] = value
    return domain, properties


def _outside_quotes(text: str) -> list[str]:
    """Split at commas outside quotes."""
    if '"' not in text:
        return text.split(",")
    return re.findall(r'(?:[^,"]|"(?:[^"\\]|\\.)*")+', text)


@dataclass(frozen=True, slots=True)
class BeanPattern:
    """Matches names with exactly these keys; `more` (written `,*`) allows additional keys."""

    domain: Pattern
    properties: Mapping[str, Pattern]
    more: bool

    @property
    def places(self) -> frozenset[str]:
        found = [*self.domain.places, *(p for pattern in self.properties.values() for p in pattern.places)]
        return frozenset(found)

    def match(self, domain: str, properties: Mapping[str, str]) -> dict[str, str] | None:
        """Return the texts at the named places, None if the name does not match."""
        if len(properties) < len(self.properties) or (len(properties) > len(self.properties) and not self.more):
            return None
        found = self.domain.match(domain)
        for key, pattern in self.properties.items():
            here = pattern.match(properties[key]) if found is not None and key in properties else None
            if here is None:
                return None
            found = {**(found or {}), **here}
        return found


def parse_bean_pattern(text: str) -> BeanPattern:
    """Parse the pattern of a bean's name. Raises PatternError."""
    more = text.endswith(",*")
    split = split_bean_name(text[:-2] if more else text)
    if split is None:
        raise PatternError(f"{text!r} is not the name of a bean: write domain:key=value,key=value")
    domain, properties = split
    patterns = {key: parse_pattern(value) for key, value in properties.items()}
    pattern = BeanPattern(parse_pattern(domain), patterns, more)
    count = len(pattern.domain.places) + sum(len(p.places) for p in patterns.values())
    if len(pattern.places) < count:
        raise PatternError(f"{text!r}: one name for two placeholders")
    return pattern
