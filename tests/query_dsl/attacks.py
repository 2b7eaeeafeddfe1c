"""Texts that try to run code or to exhaust the parser or evaluator. Run as a program, it tries them all in turn
with little memory to spare: see test_attacks.py."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from artimon.model.select import Buckets, Matcher, SelectError, SelectRequest, Series
from artimon.model.values import Kind, ValueType
from query_dsl import QueryError, evaluate, parse

MINUTE = 60_000
T = 1_800_000_000_000 // 3_600_000 * 3_600_000
NOW = T + 15_000
MEMORY = 3 << 30
MANY = 1_000_000


@dataclass
class Crowd:
    """Store with more series than any limit allows; it refuses them as a shard does."""

    size: int = 3
    asked: list[SelectRequest] = field(default_factory=list)

    def levels(self) -> tuple[tuple[int, int], ...]:
        return ((MINUTE, 60), (5 * MINUTE, 48), (15 * MINUTE, 96), (60 * MINUTE, 72))

    def names(self) -> list[str]:
        return ["x"]

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        return ["host"] if label is None else [f"h{i}" for i in range(min(self.size, limit))]

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        return [self.one(i) for i in range(min(self.size, limit))]

    def one(self, i: int) -> Series:
        return Series(i, "x", {"host": f"h{i}"}, ValueType.DOUBLE, Kind.GAUGE)

    def select(self, request: SelectRequest) -> Buckets:
        self.asked.append(request)
        if self.size > request.limit:
            raise SelectError(f"{self.size} series fit: at most {request.limit} at once; name more labels")
        shape = (self.size, request.grid.n)
        return Buckets(
            request.grid,
            tuple(self.one(i) for i in range(self.size)),
            {name: np.ones(shape, np.int64) for name in request.statistics},
            ended_ms=np.zeros(self.size, np.int64),
            newest_ms=np.full(self.size, T, np.int64),
        )


F = "fetch('x')"
RUNS_CODE = {
    "import": "__import__('os').system('true')",
    "import in an argument": f"{F}.map(__import__('os').system('true'), '5m')",
    "lambda": f"{F}.map(lambda w: w, '5m')",
    "format text": "fetch(f'{().__class__}')",
    "format text nested": f"{F}.named(f'{{{F}}}')",
    "comprehension": f"{F}.mean(by=[l for l in ['a']])",
    "generator": f"{F}.mean(by=list(l for l in 'ab'))",
    "dictionary": f"{F}.mean(**{{'by': []}})",
    "star": f"{F}.mean(*[1])",
    "walrus": f"(y := {F})",
    "conditional": f"{F} if True else {F}",
    "subscript": f"{F}[0]",
    "slice": f"{F}[0:1]",
    "await": f"await {F}",
    "yield": f"(yield {F})",
    "assignment": f"y = {F}",
    "statement": f"{F}; import os",
    "new line, then a statement": f"{F})\nimport os\n(1",
    "class of a tuple": "().__class__.__bases__[0].__subclasses__()",
    "class of an expression": f"{F}.__class__",
    "called class of an expression": f"{F}.__class__({F})",
    "globals of a function": "fetch.__globals__",
    "globals, called": "fetch.__globals__('x')",
    "init": f"{F}.__init__(1)",
    "reduce of pickle": f"{F}.__reduce__()",
    "private method": f"{F}._wrap(1)",
    "attribute": f"{F}.node",
    "slot": f"{F}.collector",
    "collect": f"{F}.collect()",
    "bound": f"{F}.bound(1)",
    "plot": f"{F}.plot()",
    "getattr": f"getattr({F}, 'node')",
    "eval": "eval('1')",
    "exec": "exec('1')",
    "open": "open('/etc/passwd')",
    "print": "print(1)",
    "builtins": "__builtins__",
    "name of a module": "os",
    "breakpoint": "breakpoint()",
    "vars": "vars()",
    "name of a builtin as function": f"{F}.map(eval, '5m')",
    "name of a builtin in quotes": f"{F}.map('eval', '5m')",
    "dunder in quotes": f"{F}.map('__class__', '5m')",
    "dunder as operator": f"apply('__add__', {F}, 1)",
    "dunder as filter": f"{F}.filter('__init__', 1)",
    "dunder as transform": f"{F}.transform('__doc__')",
    "format method": f"'{{0.__class__}}'.format({F})",
    "percent format": "'%s' % 1",
    "homoglyph": f"{F}.m\u0430p('mean', '5m')",
    "full-width letters, which Python reads as plain ones": "\uff46etch('x')",
    "mathematical letters": f"{F}.\U0001d5c6\U0001d5ba\U0001d5c9('mean', '5m')",
    "full-width dunder": f"{F}.\uff3f\uff3fclass\uff3f\uff3f",
    "script letters of eval": "\U0001d4ee\U0001d4ff\U0001d4ea\U0001d4f5('1')",
    "bytes": "fetch(b'x')",
    "ellipsis": f"{F}.mean(by=[...])",
    "complex number": f"{F} + 1j",
    "matrix product": f"{F} @ {F}",
    "own keyword": f"{F}.map('mean', '5m', self=1)",
    "keyword twice": f"{F}.mean(by=[], by=[])",
    "not": f"not {F}",
    "in": f"{F} in [1]",
    "is": f"{F} is None",
    "and": f"{F} and {F}",
}


def nested(open_: str, inner: str, close: str, times: int) -> str:
    return open_ * times + inner + close * times


N = 100_000
DEEP: dict[str, Callable[[], str]] = {
    "nested calls": lambda: nested("absent(", "'x'", ")", N),
    "nested apply": lambda: nested("apply(add, 1, ", F, ")", N),
    "nested apply under the length": lambda: nested("apply(add,1,", F, ")", 1_000),
    "parentheses": lambda: nested("(", F, ")", N),
    "parentheses under the length": lambda: nested("(", F, ")", 8_000),
    "parentheses just too deep": lambda: nested("(", F, ")", 101),
    "open parentheses only": lambda: "(" * 16_000,
    "brackets": lambda: f"{F}.mean(by=" + nested("[", "", "]", 8_000) + ")",
    "minus": lambda: "-" * N + F,
    "minus under the length": lambda: "-" * 16_000 + F,
    "tilde": lambda: "~" * 16_000 + F,
    "not": lambda: "not " * 4_000 + F,
    "attributes": lambda: F + ".a" * N,
    "attributes under the length": lambda: F + ".a" * 8_000,
    "calls in a chain": lambda: F + ".abs()" * N,
    "calls in a chain under the length": lambda: F + ".abs()" * 2_600,
    "subscripts": lambda: F + "[0]" * 5_000,
    "terms": lambda: F + "+1" * 8_000,
    "terms to the right": lambda: nested("1+(", F, ")", 4_000),
    "powers": lambda: "2" + "**2" * 5_000,
    "powers without brackets, to the right": lambda: F + "**2" * 499,
    "comparisons": lambda: F + "<1" * 8_000,
    "lambdas": lambda: "lambda: " * 2_000 + "1",
    "conditionals": lambda: "1 if 1 else " * 1_300 + "1",
    "commas": lambda: "," * 16_000,
    "quotes": lambda: "'" * 15_999,
    "mixed": lambda: nested("-(~", F, ")", 5_000),
    "strings side by side": lambda: "'a'" * 5_000,
    "comments": lambda: "#" * 16_000,
    "lines": lambda: "\n" * 16_000,
    "backslashes": lambda: "\\\n" * 8_000,
    "set operators": lambda: nested(f"{F}.or_(", F, ")", 1_200),
    "set operators just too deep": lambda: nested(f"{F}.or_(", F, ")", 101),
}
HUGE: dict[str, Callable[[], str]] = {
    "power of powers": lambda: "10**10**10",
    "power of powers as an operand": lambda: f"{F} + 10**10**10",
    "power of a long number": lambda: f"{F} * 9" + "9" * 300 + "**9999",
    "shift": lambda: f"{F} + (1 << 10000000)",
    "repetition": lambda: "'x' * 10000000000",
    "integer of 10,000 digits": lambda: f"{F} + " + "9" * 10_000,
    "integer of 4,000 digits": lambda: f"{F} + " + "9" * 4_000,
    "integer of 4,000 digits as an argument": lambda: f"{F}.clamp(0, " + "9" * 4_000 + ")",
    "integer of 4,000 digits to a reducer": lambda: f"{F}.reduce('topk', " + "9" * 4_000 + ", by=[])",
    "hexadecimal of 16,000 digits": lambda: f"{F} + 0x" + "f" * 16_000,
    "min_count of 4,000 digits": lambda: f"{F}.mean(by=[], min_count=" + "9" * 4_000 + ")",
    "text of 10 MB": lambda: "fetch('" + "x" * 10_000_000 + "')",
    "duration of 10,000 digits": lambda: f"{F}.range('" + "9" * 10_000 + "w')",
    "duration of 15 digits": lambda: f"{F}.range('" + "9" * 15 + "w')",
    "range": lambda: f"{F}.range('1000000w')",
    "range beyond int64": lambda: f"{F}.range('999999999999999w999999999999999w')",
    "offset": lambda: f"{F}.offset('100000000w')",
    "window": lambda: f"{F}.map('mean', '14000000000w')",
    "window of 60 points, 10,000 weeks back": lambda: f"{F}.map('mean', '10000w').range('3d')",
    "tiny step": lambda: f"{F}.bucketize('mean', '1ms').range('3d')",
    "tiny step of samples": lambda: "samples('x').bucketize('mean', '1ms').range('100w')",
    "between": lambda: f"{F}.between(-9007199254740992, 9007199254740992)",
    "instant beyond everything": lambda: f"{F}.at(99999999999999999999)",
    "year 9999": lambda: f"{F}.between('0001-01-01', '9999-12-31T23:59:59Z')",
    "shifted": lambda: f"{F}.transform('shift', '10000w')",
    "weeks": lambda: f"{F}.map('deviation', '1h', weeks=100000)",
    "labels in by": lambda: f"{F}.mean(by=[" + ",".join(f"'a{i}'" for i in range(1_800)) + "])",
    "labels in by, not in the length": lambda: f"{F}.mean(by=[" + "'a'," * 1_000_000 + "])",
    "matchers": lambda: "fetch('x{" + ",".join(f'a{i}!="b"' for i in range(1_000)) + "}')",
    "digits to round to": lambda: f"{F}.round(digits=100000000000)",
    "lttb": lambda: f"{F}.transform('lttb', 100000000000000000000000)",
}
PATTERNS: dict[str, str] = {
    "of 10,000 characters": "a" * 10_000,
    "counted repetition": "(a{1000}){1000}",
    "counted repetition thrice": "((a{100}){100}){100}",
    "back reference": "(a)\\1",
    "look ahead": "(?=a)a",
    "broken": "(((",
    "possessive": "a++",
}
HARMLESS: dict[str, str] = {
    "max_gap": f"{F}.fill('previous', max_gap='10000w')",
    "comment in any alphabet": f"{F}  # \u0430\U0001d4ee",
    "name in any alphabet": "fetch('x{host!=\"\u0430\"}')",
}
"""Queries that look dangerous but are answered at once."""
HARMLESS_PATTERNS: dict[str, str] = {
    "class, counted": "[\\x{0}-\\x{10ffff}]{1000}",
    "nested groups": "(" * 450 + "a" + ")" * 450,
    "exponential elsewhere": "(a*)*b",
    "nested quantifiers": "(a+)+$",
    "alternatives": "(a|aa)+c",
    "many stars": ".*" * 400,
    "thousand optional": "a?" * 200 + "a" * 200,
}
BROKEN: dict[str, str] = {
    "null byte": "fetch('x\0')",
    "null byte outside": f"{F}\0",
    "lone surrogate": "fetch('\ud800')",
    "lone surrogate outside": f"{F}\udfff",
    "lone surrogate in a label": "fetch('x{a=\"\udc00\"}')",
    "lone surrogate as a name": f"{F}.named('\udc80')",
    "lone surrogate by escape": f"{F}.named('\\ud800')",
    "lone surrogate compared": f"{F} == '\ud800'",
    "name by escape": "fetch('\\N{SNOWMAN}')",
    "broken escape": "fetch('\\x')",
    "right-to-left mark": f"{F}\u202e.abs()",
    "zero width": f"{F}.a\u200bbs()",
    "form feed": f"\f{F}\f)",
    "byte order mark within": f"{F} \ufeff + 1",
    "unclosed": "fetch('x",
    "closing first": ")(",
    "vertical tab": f"{F}\v+ 1",
}


def texts() -> Iterator[tuple[str, str]]:
    """(name, text) of all queries that every store refuses."""
    yield from RUNS_CODE.items()
    for group in (DEEP, HUGE):
        yield from ((name, make()) for name, make in group.items())
    yield from BROKEN.items()
    for name, pattern in PATTERNS.items():
        yield f"pattern: {name}", f"fetch('x{{host=~\"{escaped(pattern)}\"}}')"
        yield f"pattern of match: {name}", f"{F}.map('to_string').map('match', '{pattern_literal(pattern)}')"


def escaped(pattern: str) -> str:
    """Within the quotes of a selector within those of the query."""
    return pattern.replace("\\", "\\\\\\\\")


def pattern_literal(pattern: str) -> str:
    return pattern.replace("\\", "\\\\")


def refusal(text: str, store: Crowd) -> str:
    """Error that refuses the text; fails if there is none."""
    try:
        found = evaluate(parse(text), store, NOW)
    except QueryError as problem:
        return str(problem)
    raise AssertionError(f"answered with {len(found)} series: {text[:200]!r}")


def resident() -> int:
    """Memory in kilobytes."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() // 1024


def main() -> int:
    """Every attack twice over, in an address space that holds little more than the libraries."""
    parse(F)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    marks = []
    for _ in range(2):
        for name, text in texts():
            begun = time.process_time()
            said = refusal(text, Crowd())
            took = time.process_time() - begun
            if took > 1 or len(said) > 10_000:
                print(f"{name}: {took:.2f} s of CPU, {len(said)} characters of error")
                return 1
        marks.append(resident())
    print(" ".join(map(str, marks)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
