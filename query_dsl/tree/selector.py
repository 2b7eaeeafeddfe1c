r"""The selector: `name{a="x",b!="y",c=~"re",d!~"re"}`; a trailing `.*` of the name makes it a prefix.

    selector := [name [".*"]] ["{" [matcher {"," matcher} [","]] "}"]
    matcher  := label ("=" | "!=" | "=~" | "!~") quoted
    quoted   := '"' … '"' | "'" … "'"      escapes: \\ \" \' \n \r \t; any other backslash is literal

An absent label has the value "". Regular expressions are RE2 and match the whole value. At least one matcher must
reject "".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import re2

from artimon.model.select import NAME, Matcher
from query_dsl.tree.literals import has_lone_surrogates
from query_dsl.tree.query_errors import QueryError

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:/\-]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OPS = ("=~", "!~", "!=", "=")
_ESCAPES = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "r": "\r", "t": "\t"}
MAX_REGEX = 1_000
MAX_MATCHERS = 50
_REGEX_MEMORY = 1 << 20


@dataclass(frozen=True, slots=True)
class Selector:
    """Selector of `fetch`: a series matches if all matchers accept it."""

    matchers: tuple[Matcher, ...]

    def __str__(self) -> str:
        head, rest = "", self.matchers
        if rest and rest[0].label == NAME and rest[0].op in ("=", "prefix"):
            head = rest[0].value + ("*" if rest[0].op == "prefix" else "")
            if _NAME.fullmatch(rest[0].value):
                rest = rest[1:]
            else:
                head = ""
        return head + (f"{{{','.join(map(matcher_text, rest))}}}" if rest or not head else "")


def quote(value: str) -> str:
    """Quote and escape `value` such that the selector parser returns it unchanged."""
    out = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{out}"'


def matcher_text(matcher: Matcher) -> str:
    """Format a matcher as between the braces (a prefix as `__name__prefix"…"`, only for messages)."""
    return f"{matcher.label}{matcher.op}{quote(matcher.value)}"


def series_text(name: str, labels: Mapping[str, str]) -> str:
    """Format `name{k="v"}` with sorted labels; a named series without labels has no braces."""
    pairs = ",".join(f"{label}={quote(value)}" for label, value in sorted(labels.items()))
    return f"{name}{{{pairs}}}" if pairs or not name else name


def compile_regex(pattern: str) -> re2._Regexp[str]:
    """Compile the RE2 pattern of a matcher; QueryError if it is too long or invalid."""
    if len(pattern) > MAX_REGEX:
        raise QueryError(f"the regular expression has {len(pattern)} characters: use at most {MAX_REGEX}")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _REGEX_MEMORY
    try:
        return re2.compile(pattern, options)
    except re2.error as problem:
        detail = problem.args[0].decode() if isinstance(problem.args[0], bytes) else str(problem)
        raise QueryError(f"the regular expression {pattern!r:.40} is not valid RE2: {detail:.50}") from None


def accepts(matcher: Matcher, value: str) -> bool:
    """Return True if the matcher accepts `value` ("" = absent label)."""
    match matcher.op:
        case "=":
            return value == matcher.value
        case "!=":
            return value != matcher.value
        case "=~":
            return compile_regex(matcher.value).fullmatch(value) is not None
        case "!~":
            return compile_regex(matcher.value).fullmatch(value) is None
        case "prefix":
            return value.startswith(matcher.value)
    raise QueryError(f"unknown matcher {matcher.op!r}")


def parse_selector(text: str, of_all: bool = True) -> Selector:
    """Parse a selector; QueryError has the position in `text`. `of_all`: it applies to all series, so at least one
    matcher must reject ""."""
    if not isinstance(text, str):
        raise QueryError(f"a selector is a text in quotes, not {text!r:.80}")
    if has_lone_surrogates(text):
        raise QueryError("a selector cannot hold lone surrogates: UTF-8 has no form for them")
    return _SelectorParser(text).selector(of_all)


class _SelectorParser:
    """Cursor over the text; each method advances it past the text that it consumed."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def fail(self, message: str, position: int | None = None, length: int = 1) -> QueryError:
        return QueryError(message, self.at if position is None else position, self.text, length)

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def take(self, token: str) -> bool:
        self.skip()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def selector(self, of_all: bool) -> Selector:
        matchers = self.name()
        if self.take("{"):
            matchers += self.matchers()
        self.skip()
        if self.at < len(self.text):
            raise self.fail(
                'unexpected text in the selector: write name{label="value"}', length=len(self.text) - self.at
            )
        if of_all and not any(_rejects_nothing(m) for m in matchers):
            raise self.fail(
                'the selector matches all series: name a variable, or add a matcher that rejects an absent label ("")',
                0,
                len(self.text),
            )
        return Selector(tuple(matchers))

    def name(self) -> list[Matcher]:
        self.skip()
        found = _NAME.match(self.text, self.at)
        if found is None:
            return []
        self.at = found.end()
        if self.text.startswith("*", self.at):
            if not found[0].endswith("."):
                raise self.fail(f'write "{found[0]}.*" for a prefix, or {{__name__=~"{found[0]}.*"}} for a pattern')
            self.at += 1
            return [Matcher(NAME, "prefix", found[0])]
        return [Matcher(NAME, "=", found[0])]

    def matchers(self) -> list[Matcher]:
        found: list[Matcher] = []
        while not self.take("}"):
            if found and not self.take(","):
                raise self.fail('expected "," or "}"')
            if found and self.take("}"):
                break
            found.append(self.matcher())
            if len(found) > MAX_MATCHERS:
                raise self.fail(f"more than {MAX_MATCHERS} matchers in one selector")
        return found

    def matcher(self) -> Matcher:
        self.skip()
        label = _LABEL.match(self.text, self.at)
        if label is None:
            raise self.fail(
                'expected a label name, as in {host="a"}' if self.at < len(self.text) else 'the "{" is not closed'
            )
        self.at = label.end()
        for op in _OPS:
            if self.take(op):
                break
        else:
            raise self.fail(f"expected one of = != =~ !~ after {label[0]}")
        self.skip()
        start = self.at
        value = self.quoted(label[0])
        if op in ("=~", "!~"):
            try:
                compile_regex(value)
            except QueryError as problem:
                raise problem.with_position(start, self.text, self.at - start) from None
        return Matcher(label[0], op, value)

    def quoted(self, label: str) -> str:
        start = self.at
        mark = self.text[start : start + 1]
        if mark not in ("'", '"'):
            raise self.fail(f'the value of {label} must be in quotes, as in {label}="a"')
        out: list[str] = []
        self.at += 1
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if char == mark:
                return "".join(out)
            if char == "\\" and self.text[self.at : self.at + 1] in _ESCAPES:
                char = _ESCAPES[self.text[self.at]]
                self.at += 1
            out.append(char)
        raise self.fail(f"the value of {label} has no closing quote", start)


def _rejects_nothing(matcher: Matcher) -> bool:
    return not accepts(matcher, "")
