"""Tab completion inside query strings, in IPython and notebooks: names, labels, values, functions."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol

from artimon.model.select import SelectError
from artimon.progress_bar import ipython_shell
from query_dsl.tree.query_errors import QueryError

if TYPE_CHECKING:
    from query_dsl.language.completion import Completions

IDENTIFIER = "artimon.queries"


class CompletionSource(Protocol):
    """The method of a session that completion needs."""

    def complete(self, text: str, *, code: bool, sessions: Collection[str]) -> Completions: ...


def install(session: CompletionSource) -> bool:
    """Complete queries of the running IPython from `session`, replacing an earlier session. False without IPython."""
    ip = ipython_shell()
    completer = getattr(ip, "Completer", None)
    if completer is None or not hasattr(completer, "custom_matchers"):
        return False
    kept = [one for one in completer.custom_matchers if getattr(one, "matcher_identifier", "") != IDENTIFIER]
    completer.custom_matchers[:] = [*kept, _make_matcher(session, ip)]
    return True


def _make_matcher(session: CompletionSource, ip: Any) -> Any:
    from IPython.core.completer import SimpleCompletion, context_matcher

    matcher_of: Any = context_matcher(identifier=IDENTIFIER)

    def matcher(context: Any) -> dict[str, Any]:
        """Complete from the text of the cell before the cursor; errors give no completions."""
        before = "\n".join(context.full_text.split("\n")[: context.cursor_line + 1])
        last = context.full_text.split("\n")[context.cursor_line]
        before = before[: len(before) - len(last) + context.cursor_position]
        sessions = {name for name, value in list(ip.user_ns.items()) if isinstance(value, type(session))}
        try:
            found = session.complete(before, code=True, sessions=sessions)
        except (QueryError, SelectError):
            return {"completions": []}
        words = [SimpleCompletion(text=word, type=found.kind) for word in found.words]
        return {"completions": words, "matched_fragment": before[found.start :], "suppress": bool(words)}

    made: Any = matcher_of(matcher)
    return made
