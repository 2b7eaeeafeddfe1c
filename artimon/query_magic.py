"""`%artimon` and `%%artimon` of IPython: a query as a line or a cell, without quotes."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

from artimon.progress_bar import ipython_shell
from query_dsl.results.matrix import Matrix
from query_dsl.tree.query_errors import QueryError

NAME = "artimon"


class MagicSession(Protocol):
    """The methods of a session that the magic needs."""

    def query(self, query: str, at: object = None, **options: Any) -> Matrix: ...

    def promql(self, query: str, at: object = None, **options: Any) -> Matrix: ...

    def chart(self, query: Matrix) -> Any: ...


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise QueryError(f"%artimon: {message}\n{self.format_usage().strip()}")


def _parser() -> _Parser:
    parser = _Parser(prog="%artimon", add_help=False, allow_abbrev=False)
    parser.add_argument("--promql", action="store_true", help="the query is PromQL")
    parser.add_argument("--at", help="instant of the evaluation, such as now-1h")
    parser.add_argument("--start", help="PromQL: first instant of a range")
    parser.add_argument("--step", help="PromQL: distance of the instants of a range")
    parser.add_argument("--engine", help="memory, history or auto")
    parser.add_argument("--chart", action="store_true", help="draw the answer instead of the table")
    parser.add_argument("--into", help="name of a variable for the answer")
    return parser


def run_magic(session: MagicSession, shell: Any, line: str, cell: str | None) -> Any:
    """Answer the query of a line, after its options, or of a cell. Raises QueryError, SelectError."""
    words, query = _split(line) if cell is None else (shlex.split(line), cell.strip())
    options = _parser().parse_args(words)
    if not query:
        raise QueryError("%artimon: the query is missing: write it after the options, or below %%artimon")
    if options.into is not None and not options.into.isidentifier():
        raise QueryError(f"%artimon: --into {options.into}: write the name of a variable")
    named = {name: value for name in ("engine", "start", "step") if (value := getattr(options, name)) is not None}
    if not options.promql and named.keys() & {"start", "step"}:
        raise QueryError("%artimon: --start and --step belong to --promql: write .range(…) in the query")
    found = (session.promql if options.promql else session.query)(query, options.at, **named)
    if options.into:
        shell.user_ns[options.into] = found
    return session.chart(found) if options.chart else found


def _split(line: str) -> tuple[Sequence[str], str]:
    """Split a line into its leading options and the query, whose quotes are its own."""
    parser, words, rest = _parser(), list[str](), line.strip()
    while rest.startswith("--"):
        word, _, rest = rest.partition(" ")
        words.append(word)
        action = parser._option_string_actions.get(word)
        rest = rest.lstrip()
        if action is not None and action.nargs != 0:
            word, _, rest = rest.partition(" ")
            words.append(word)
            rest = rest.lstrip()
    return words, rest


def install(session: MagicSession) -> bool:
    """Register the magic for the running IPython, with this session. False without IPython."""
    shell = ipython_shell()
    if shell is None:
        return False

    def magic(line: str, cell: str | None = None) -> Any:
        """Answer a query of Artimon: %artimon [options] QUERY, or %%artimon [options] and the query below."""
        return run_magic(session, shell, line, cell)

    shell.register_magic_function(magic, "line_cell", NAME)
    return True
