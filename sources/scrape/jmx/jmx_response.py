"""Parser of a bean server's JSON answers. Everything that a server sends is validated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sources.base.source_errors import PollError, RejectCounts

Bean = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BeanResponse:
    """Beans of one poll by name, in the order of the answers."""

    beans: dict[str, Bean]
    faults: RejectCounts = field(default_factory=RejectCounts)


def parse_answers(answers: Sequence[bytes]) -> BeanResponse:
    """Parse all answers of one poll. Raises PollError `garbage` if one is not the answer of a bean server.

    Java writes NaN bare, which is not JSON but accepted here. A bean without a name, or one repeated within an answer,
    is left out and counted. A bean repeated in another answer is not: some servers ignore the query and send all."""
    answer = BeanResponse({})
    for data in answers:
        here: set[str] = set()
        for bean in _beans(data, answer.faults):
            _keep(answer, here, bean)
    return answer


def parse_json(data: bytes, pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Parse JSON. Raises PollError `garbage`."""
    try:
        return json.loads(data, object_pairs_hook=pairs_hook)
    except (ValueError, RecursionError) as error:
        raise PollError("garbage", f"not JSON: {error}; it begins {data[:40]!r}") from error


def _beans(data: bytes, faults: RejectCounts) -> list[Any]:
    def joined(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            repeated = Counter(key for key, _ in pairs).most_common(1)[0][0]
            faults.add("attribute twice", f"{repeated}: the last one counts", len(pairs) - len(made))
        return made

    content = parse_json(data, joined)
    beans = content.get("beans") if isinstance(content, dict) else None
    if not isinstance(beans, list):
        raise PollError("garbage", f'no list "beans" in the answer; it begins {data[:40]!r}')
    return beans


def _keep(answer: BeanResponse, here: set[str], bean: Any) -> None:
    name = bean.get("name") if isinstance(bean, dict) else None
    if not isinstance(name, str):
        answer.faults.add("bad bean", f"a bean without a name: {bean!r:.80}")
    elif name in here:
        answer.faults.add("bean twice", name)
    else:
        here.add(name)
        answer.beans.setdefault(name, bean)


@dataclass(frozen=True, slots=True)
class JvmIdentity:
    """Identity of a JVM: its start time by its own clock, in ms, and its name, such as `4711@web1`."""

    time_ms: int
    name: str


def identity_of(answer: BeanResponse) -> JvmIdentity | None:
    """Return the identity of the JVM. None, and a fault, if the server does not report it."""
    runtime = answer.beans.get("java.lang:type=Runtime", {})
    time_ms, name = runtime.get("StartTime"), runtime.get("Name")
    if isinstance(time_ms, int) and not isinstance(time_ms, bool) and 0 < time_ms < 1 << 53:
        return JvmIdentity(time_ms, name if isinstance(name, str) else "")
    answer.faults.add("no start", f"java.lang:type=Runtime has the StartTime {time_ms!r:.40}: restarts are unnoticed")
    return None
