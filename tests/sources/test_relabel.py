"""Rules that keep, drop and rewrite series: errors are reported; rules hold for every kind of source."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.labels import parse_canonical
from sources.state.relabel import ACTIONS, RelabelRule, RelabelRuleError, RelabelRules, make_relabel_rule
from sources.state.schema_binding import bind_schema
from sources.state.source_reading import ReadingBuilder, SourceSchema, SourceVariable
from tests.sources.helpers import HOST, KeepingSink, answering, columns, endpoint, register, registry, running
from tests.sources.jmx.bean_server import bean_server
from tests.waiting import until

LABELS = {"job": "web", "code": "500", "le": "+Inf"}


def applied(*rules: RelabelRule, name: str = "http_requests") -> tuple[str, dict[str, str]] | None:
    return RelabelRules(rules).apply(name, LABELS, Counter())


def rule(**settings: Any) -> RelabelRule:
    return make_relabel_rule("r", **settings)


def test_a_rule_that_rewrites() -> None:
    done = applied(
        rule(
            source_labels=["job", "code"],
            separator="-",
            regex="(w.*)-(?P<n>.)..",
            target_label="x",
            replacement="${n}$1$$",
        )
    )
    assert done == ("http_requests", {**LABELS, "x": "5web$"})
    assert applied(rule(source_labels=["code"], regex="4..", target_label="code", replacement="")) == (
        "http_requests",
        LABELS,
    )
    assert applied(rule(source_labels=["code"], regex="5..", target_label="code", replacement="")) == (
        "http_requests",
        {"job": "web", "le": "+Inf"},
    )


def test_notes_of_rules_are_left_out_at_the_end() -> None:
    note = rule(source_labels=["code"], regex="(.)..", target_label="__tmp")
    use = rule(source_labels=["__tmp"], target_label="class")
    assert applied(note, use) == ("http_requests", {**LABELS, "class": "5"})


def test_counts_are_of_series_that_a_rule_dropped_or_changed() -> None:
    rules = RelabelRules(
        [
            make_relabel_rule("drops", source_labels=["code"], regex="5..", action="drop"),
            make_relabel_rule("changes", source_labels=["job"], target_label="team"),
            make_relabel_rule("idle", source_labels=["job"], regex="(x)", target_label="team"),
            make_relabel_rule("same", source_labels=["job"], target_label="job"),
        ]
    )
    acted: Counter[str] = Counter()
    for code in ("200", "404", "500"):
        rules.apply("n", {"job": "a", "code": code}, acted)
    assert acted == {"drops": 1, "changes": 2}


@pytest.mark.parametrize(
    ("settings", "field", "text"),
    [
        ({"action": "explode"}, "action", "unknown action 'explode': use one of replace, keep"),
        ({"regex": "(", "target_label": "x"}, "regex", "not valid RE2"),
        ({"regex": r"(a)\1", "target_label": "x"}, "regex", "not valid RE2"),
        ({"regex": "a" * 1_001, "target_label": "x"}, "regex", "at most 1000"),
        ({"regex": "(a{1000}){1000}", "target_label": "x"}, "regex", "not valid RE2"),
        ({}, "target_label", "needs a `target_label:`"),
        ({"target_label": "1x"}, "target_label", "'1x' is none"),
        ({"target_label": "x", "replacement": "$2"}, "replacement", "no such group"),
        ({"target_label": "x", "replacement": "$1x"}, "replacement", "written `${1}_a`"),
        ({"target_label": "${no}", "regex": "(.)"}, "target_label", "no such group"),
        ({"action": "keep"}, "", "needs `source_labels:`"),
        ({"action": "drop", "source_labels": ["a-b"]}, "source_labels", "'a-b' is not the name"),
        ({"action": "drop", "source_labels": ["a"], "target_label": "x"}, "target_label", "does not use"),
        ({"action": "hashmod", "source_labels": ["a"], "target_label": "x"}, "modulus", "above 0"),
        ({"action": "labeldrop", "modulus": 3}, "modulus", "and only there"),
        ({"action": "uppercase", "source_labels": ["a"], "target_label": "$1"}, "target_label", "'$1' is none"),
        ({"target_label": "x", "sources": "["}, "sources", "not valid RE2"),
    ],
)
def test_what_is_wrong_with_a_rule_is_said(settings: dict[str, Any], field: str, text: str) -> None:
    with pytest.raises(RelabelRuleError) as caught:
        rule(**settings)
    assert caught.value.setting == field
    assert text in str(caught.value)


TEXTS = st.text(max_size=20)
NAMES = st.sampled_from(["a", "b", "__name__", "__x", "le"])


@given(
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.lists(NAMES, max_size=2), TEXTS, NAMES, TEXTS), max_size=5),
    st.dictionaries(st.sampled_from(["a", "b", "c"]), TEXTS),
)
def test_no_rule_that_can_be_made_ever_raises(made: list[Any], labels: dict[str, str]) -> None:
    rules = []
    for i, (action, source, regex, target, replacement) in enumerate(made):
        more = (
            {"target_label": target}
            if action in ("replace", "hashmod", "uppercase", "lowercase", "keepequal", "dropequal")
            else {}
        )
        try:
            rules.append(
                make_relabel_rule(str(i), action=action, source_labels=source, regex=regex, replacement=replacement,
                          modulus=7 if action == "hashmod" else 0, **more)
            )  # fmt: skip
        except RelabelRuleError:
            continue
    done = RelabelRules(rules).apply("n", labels, Counter())
    assert done is None or not any(label.startswith("__") or not value for label, value in done[1].items())


def test_a_pattern_that_would_take_others_for_ever_takes_no_time() -> None:
    """RE2: linear in the text."""
    slow = rule(source_labels=["x"], regex="(a*)*b", action="keep")
    began = SYSTEM_CLOCK.monotonic()
    assert RelabelRules([slow]).apply("n", {"x": "a" * 100_000}, Counter()) is None
    assert SYSTEM_CLOCK.monotonic() - began < 20


def _schema(*labels: dict[str, str]) -> SourceSchema:
    return ReadingBuilder(bytes(16), 0).make([SourceVariable("n", one, 1) for one in labels], 1).schema


def test_rules_see_automatic_labels_and_what_they_make_is_checked() -> None:
    drop = rule(source_labels=["host", "x"], separator="/", regex="web1/1", action="drop")
    bound = bind_schema(_schema({"x": "1"}, {"x": "2"}), {"host": "web1"}, RelabelRules([drop]))
    assert [column.text for column in bound.columns] == ['n{host="web1",x="2"}']
    assert bound.changed_by_rule == {"r": 1}
    assert bound.refused == {}
    same = bind_schema(_schema({"x": "1"}, {"x": "2"}), {}, RelabelRules([rule(action="labeldrop", regex="x")]))
    assert same.refused == {"same series twice": 1}
    nameless = bind_schema(
        _schema({}), {}, RelabelRules([rule(source_labels=[], target_label="__name__", replacement="")])
    )
    assert nameless.refused == {"bad name or label": 1}


def test_a_rule_of_the_agent_holds_for_every_kind_of_source(tree: str, tmp_path: Path) -> None:
    """A process, a drop-in file, a bean server and a Prometheus page; one that is named by `sources:` alone."""
    dropin = tmp_path / "dropin"
    dropin.mkdir()
    (dropin / "one.artimon").write_text(f"{SYSTEM_CLOCK.now_ms()} secret 1\n{SYSTEM_CLOCK.now_ms()} open 1\n")
    rules = [
        {"name": "no-secrets", "source_labels": ["__name__"], "regex": "secret|jvm_?.*secret", "action": "drop"},
        {
            "name": "no-jvm",
            "sources": "jmx/.*",
            "source_labels": ["__name__"],
            "regex": "jvm[.]uptime.*",
            "action": "drop",
        },
        {"name": "team", "sources": "shop/.*|file/.*", "target_label": "team", "replacement": "ours"},
    ]
    uuid_ = bytes(range(16))

    async def run() -> None:
        sink = KeepingSink()
        async with (
            bean_server() as beans,
            endpoint(answering(lambda: columns(uuid_, {"secret": 1, "open": 2}))) as port,
        ):
            beans.beans = [{"name": "java.lang:type=ClassLoading", "LoadedClassCount": 7}]
            file = tmp_path / "sources.yaml"
            jmx = [{"context": "java", "url": f"http://127.0.0.1:{beans.port}/jmx"}]
            file.write_text(json.dumps({"relabel": rules, "jmx": jmx}))
            with registry(tree) as client:
                register(client, "shop", port, uuid_)
                async with running(
                    tree, tmp_path / "agent", sink, sources=file, dropin=dropin, period_ms=500
                ) as source:
                    names = {f"shop/{HOST}/0", f"file/{HOST}/one", f"jmx/java/{HOST}/0"}
                    await until(lambda: names <= {p.source for p in sink.accepted}, "a poll of each")
                    want = {"no-secrets": 2, "no-jvm": 1, "team": 2}
                    await until(lambda: said(sink) == want, f"{want}")
                    assert source.figures()["refused"] == {}
        assert {name for name, _ in found(sink, f"shop/{HOST}/0")} == {"open"}
        assert found(sink, f"file/{HOST}/one") == {("open", "ours")}
        assert found(sink, f"jmx/java/{HOST}/0") == {("jvm.classes", "")}

    def found(sink: KeepingSink, source: str) -> set[tuple[str, str]]:
        parsed = [parse_canonical(text) for text, *_ in sink.samples(source)]
        return {(name, labels.get("team", "")) for name, labels in parsed}

    def said(sink: KeepingSink) -> dict[str, Any]:
        samples = [(t, v) for t, _, _, v in sink.samples(f"agent/{HOST}/agent1") if t.startswith("artimon.rule.series")]
        return {parse_canonical(text)[1]["rule"]: value for text, value in samples}

    asyncio.run(run())
