"""Questions at the end of the proof about the shop, the JVMs and Artimon itself; each must say something."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from artimon.model.select import SelectError, Store
from query_dsl import Matrix, QueryError, evaluate, parse, render_table


@dataclass(frozen=True, slots=True)
class Question:
    """`text` holds {start} and {end}, epoch ms. `least` series must have a value, none may be NaN or below 0."""

    about: str
    text: str
    least: int


SHOP_CHART = "fetch('shop.requests').rate('1m').sum(by=['route'])"
"""What the screenshot shows."""
QUESTIONS = (
    Question(
        "the shop: requests a second by route",
        "fetch('shop.requests').between({start}, {end}).rate().sum(by=['route'])",
        4,
    ),
    Question(
        "the shop: share of requests that failed",
        "fetch('shop.requests{{status=~\"5..\"}}').between({start}, {end}).increase().sum(by=['context'])"
        " / fetch('shop.requests').between({start}, {end}).increase().sum(by=['context'])",
        1,
    ),
    Question(
        "the JVMs: memory in use by server and area, bytes",
        "fetch('jvm.memory.used.bytes').between({start}, {end}).max(by=['context', 'area'])",
        4,
    ),
    Question(
        "HDFS: operations a minute of the NameNode",
        "fetch('hdfs.namenode.operations').between({start}, {end}).increase().sum(by=['context'])",
        1,
    ),
    Question(
        "Artimon: memory of each of its processes, bytes",
        "fetch('artimon.process.resident.bytes').between({start}, {end}).max(by=['instance'])",
        7,
    ),
    Question(
        "Artimon: samples that the agent accepted, a minute",
        "fetch('artimon.agent.samples.accepted').between({start}, {end}).increase()",
        1,
    ),
    Question(
        "Artimon: how long a batch waits for the raw table at most, ms",
        "fetch('artimon.spark.lag.ms').between({start}, {end}).max(by=[])",
        1,
    ),
)


def report_answers(store: Store, start_ms: int, end_ms: int, now_ms: int, questions: Iterable[Question]) -> bool:
    """Ask and print; True if every answer says something."""
    wrong = []
    for question in questions:
        text = question.text.format(start=start_ms, end=end_ms)
        print(question.about)
        print(f"  {text}")
        try:
            answer = evaluate(parse(text), store, now_ms)
        except (QueryError, SelectError) as problem:
            print(f"  {problem}")
            wrong.append(question.about)
            continue
        print(render_table(answer))
        if not _says_something(answer, question.least):
            wrong.append(question.about)
    for about in wrong:
        print(f"no good answer about {about}")
    return not wrong


def _says_something(answer: Matrix, least: int) -> bool:
    values = [[value for value in answer.tolist(i) if value is not None] for i in range(len(answer))]
    told = sum(bool(one) for one in values)
    return told >= least and all(
        isinstance(value, int | float) and not math.isnan(value) and value >= 0 for one in values for value in one
    )
