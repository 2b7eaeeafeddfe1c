"""Names that differ in dots and underscores only, as `http_requests_total` and `http.requests.total`."""

from __future__ import annotations

import re

from artimon.model.select import NAME, Matcher

_SEPARATOR = re.compile("[._]")


def similar_matchers(matchers: tuple[Matcher, ...]) -> tuple[Matcher, ...]:
    """Return matchers that find every name similar to the one they name."""
    return tuple(map(_similar, matchers))


def _similar(matcher: Matcher) -> Matcher:
    if matcher.label != NAME or matcher.op != "=" or not _SEPARATOR.search(matcher.value):
        return matcher
    return Matcher(NAME, "=~", "[._]".join(map(re.escape, _SEPARATOR.split(matcher.value))))
