"""Templates of texts: those of Prometheus, our own, and hostile ones."""
# ruff: noqa: E501  # tables of templates

from __future__ import annotations

from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.templates.go_parser import parse_go
from alerts.templates.jinja_parser import parse_jinja
from alerts.templates.renderer import render
from alerts.templates.template_functions import MAX_TEXT, TemplateContext, TemplateData
from alerts.templates.template_nodes import TemplateError
from tests.alerts.worlds import World

SAMPLES = [
    {"Labels": {"__name__": "up", "host": "b"}, "Value": 2.0},
    {"Labels": {"__name__": "up", "host": "a"}, "Value": 1.5},
]
CONTEXT = TemplateContext({"region": "eu"}, "http://p:9090/x", lambda _text: SAMPLES)
DATA = TemplateData({"instance": "db1.example.org:9100", "job": "node exporter"}, 1234567.5, CONTEXT)


def go(text: str, data: TemplateData = DATA) -> str:
    return render(parse_go(text), data)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("a {{ $labels.instance }} b", "a db1.example.org:9100 b"),
        ("{{ .Labels.job }} {{ .Value }} {{ $value }}", "node exporter 1.2345675e+06 1.2345675e+06"),
        ("{{ $labels.absent }}|{{ $externalLabels.region }}|{{ externalURL }}|{{ pathPrefix }}", "|eu|http://p:9090/x|/x"),
        ("{{ $value | humanize }} {{ humanize1024 $value }} {{ $value | printf \"%.1f\" }}", "1.235M 1.177Mi 1234567.5"),
        ("{{ humanizeDuration 93784.5 }} {{ humanizeDuration 0.0123 }} {{ humanizeDuration -75 }}", "1d 2h 3m 4s 12.3ms -1m 15s"),
        ("{{ humanizePercentage 0.12345 }} {{ humanizeTimestamp 1435065584.128 }}", "12.35% 2015-06-23 13:19:44.128 +0000 UTC"),
        ("{{ humanize \"0.00042\" }} {{ humanize 0 }} {{ 100000.0 }} {{ 1e6 }} {{ 0.00001 }}", "420u 0 100000 1e+06 1e-05"),
        ("{{ title \"ab cd\" }} {{ toUpper \"x\" }} {{ toLower \"X\" }}", "Ab Cd X x"),
        ("{{ reReplaceAll \"(.*):(.*)\" \"${2}-$1\" $labels.instance }}", "9100-db1.example.org"),
        ("{{ if match \"db[0-9]+\" $labels.instance }}y{{ else }}n{{ end }}", "y"),
        ("{{ stripPort $labels.instance }} {{ stripDomain $labels.instance }}", "db1.example.org db1:9100"),
        ("{{ with query \"up\" }}{{ . | first | value }} {{ . | first | label \"host\" }}{{ end }}", "2 b"),
        ("{{ range query \"up\" | sortByLabel \"host\" }}{{ .Labels.host }}={{ .Value }} {{ end }}", "a=1.5 b=2 "),
        ("{{ range $i, $v := query \"up\" }}{{ $i }}{{ $v.Value }},{{ end }}", "02,11.5,"),
        ("{{ range $k, $v := $labels }}{{ $k }};{{ end }}{{ range .Nope }}{{ else }}none{{ end }}", "error"),
        ("{{ range $k, $v := $labels }}{{ $k }};{{ end }}", "instance;job;"),
        ("{{ if and (gt $value 1.0) (lt $value 2e9) }}in{{ end }}{{ if not true }}x{{ else if eq 1 2 1 }}z{{ end }}", "inz"),
        ("a  {{- /* c */ -}}  b {{- 1 }} {{ 2 -}}  c", "ab1 2c"),
        ("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}", "2"),
        ("{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ end }}{{ $x }}", "1"),
        ("{{ printf \"%5.1f|%-4s|%04d|%q|%v|%d%%\" 2.25 \"a\" 7 \"b\" 1.5 3 }}", "  2.2|a   |0007|\"b\"|1.5|3%"),
        ("{{ printf \"%d %s\" \"x\" }}", "%!d(string=x) %!s(MISSING)"),
        ("{{ index $labels \"job\" }} {{ len \"abc\" }} {{ slice \"abcd\" 1 3 }} {{ print 1 2 }}", "node exporter 3 bc 1 2"),
        ("{{ `raw \\n` }} {{ \"a\\tb\\u00e9\" }} {{ 'a' }} {{ 0x10 }}", "raw \\n a\tbé 97 16"),
        ("{{ range query \"up\" }}{{ if eq .Value 1.5 }}{{ break }}{{ end }}{{ .Value }}{{ end }}", "2"),
        ("{{ .Labels }} {{ args 1 \"x\" }}", "map[instance:db1.example.org:9100 job:node exporter] map[arg0:1 arg1:x]"),
        ("{{ html \"<a>\" }} {{ urlquery \"a b\" }} {{ parseDuration \"1h\" }} {{ safeHtml \"<\" }}", "&lt;a&gt; a+b 3600 <"),
    ],
)  # fmt: skip
def test_templates_of_prometheus(template: str, text: str) -> None:
    if text == "error":
        with pytest.raises(TemplateError):
            go(template)
        return
    assert go(template) == text


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ labels.job }} {{ labels['instance'] }} {{ value }}", "node exporter db1.example.org:9100 1.2345675e+06"),
        ("{{ value | humanize }} {{ (value / 1000) | round(1) }} {{ -1 + 2 * 3 }}", "1.235M 1234.6 5"),
        ("{% if value > 5 and labels.job is defined %}a{% elif true %}b{% else %}c{% endif %}", "a"),
        ("{% for k, v in labels.items() %}{{ k }}={{ v }};{% else %}none{% endfor %}",
         "instance=db1.example.org:9100;job=node exporter;"),
        ("{% for k in labels %}{{ k }} {% endfor %}{% for i in range(3) %}{{ i }}{% endfor %}", "instance job 012"),
        ("{% set x = labels.job | upper %}{{ x }}{{ '!' ~ 1 }} {{ 'y' if 'node' in x else 'n' }}", "NODE EXPORTER!1 n"),
        ("{{ labels.absent | default('none') }} {{ labels.absent }}|{# c #}{{ 'a' if value == 3 }}", "none |"),
        ("{{ '%.2f' | format(value) }} {{ labels.job | replace('node ', '') }} {{ 'x' not in ['x', 'y'] }}",
         "1234567.50 exporter false"),
        ("{{ (query('up') | first).Value }}{{ external_labels.region }} {{ labels.job | length }}", "2eu 13"),
    ],
)  # fmt: skip
def test_our_own_templates(template: str, text: str) -> None:
    assert render(parse_jinja(template), DATA) == text


LOOP = "{{ range $a := $labels }}" * 4 + "x" + "{{ end }}" * 4
MANY = TemplateData({f"l{at}": "v" for at in range(64)}, 1.0, CONTEXT)
HUGE = TemplateData({"big": "x" * 1_000_000}, 1.0, CONTEXT)


@pytest.mark.parametrize(
    ("template", "data", "told"),
    [
        pytest.param(LOOP, MANY, "steps", id="loops"),
        pytest.param("{{ $labels.big }}", HUGE, "characters", id="large_label"),
        pytest.param("{{ printf \"%s%s\" $labels.big 1 }}", HUGE, "characters", id="large_text"),
        pytest.param("{{ printf \"%999999999d\" 1 }}", DATA, "width", id="width"),
        pytest.param("{{ printf \"%.999999999f\" 1.0 }}", DATA, "width", id="precision"),
        pytest.param("{{ $x := \"xxxxxxxxxx\" }}" + "{{ $x = print $x $x $x $x }}" * 30, DATA, "characters", id="doubling"),
        pytest.param("{{ reReplaceAll \"\" \"" + "y" * 60_000 + "\" \"abc\" }}", DATA, "characters", id="replacement"),
        pytest.param("{{ reReplaceAll \"(\" \"x\" \"y\" }}", DATA, "regular expression", id="pattern"),
        pytest.param("{{ reReplaceAll \"(a*)*b\" \"x\" \"" + "a" * 5000 + "\" }}", DATA, "", id="backtracking"),
        pytest.param("{{ .Labels.__class__.__mro__ }}", DATA, "field", id="attributes"),
        pytest.param("{{ .__class__ }}", DATA, "field", id="class"),
        pytest.param("{{ index .Labels 1 2 3 }}", DATA, "no element", id="index"),
        pytest.param("{{ slice \"abc\" -1 }}", DATA, "range", id="slice"),
        pytest.param("{{ humanize $labels }}", DATA, "number", id="type"),
        pytest.param("{{ humanizeTimestamp 1e300 }}", DATA, "time", id="time"),
        pytest.param("{{ $value 3 }}", DATA, "non-function", id="no_function"),
        pytest.param("{{ len }}", DATA, "arguments", id="arguments"),
    ],
)  # fmt: skip
def test_hostile_templates_of_prometheus(template: str, data: TemplateData, told: str) -> None:
    began = perf_counter()
    if template.startswith('{{ reReplaceAll "(a*)*b"'):
        assert go(template, data) == "a" * 5000
    else:
        with pytest.raises(TemplateError, match=told):
            go(template, data)
    assert perf_counter() - began < 5


@pytest.mark.parametrize(
    ("template", "position", "told"),
    [
        ('ab {{ template "x" }}', 6, "not supported"),
        ('{{ define "x" }}{{ end }}', 3, "not supported"),
        ("x {{ call .X }}", 5, "not supported"),
        ("{{ if 1 }}" * 60, 496, "deep"),
        ("{{ " + "(" * 60, 1, ""),
        ("a\n{{ foo }}", 5, "not defined"),
        ('{{ "abc }}', 3, "unterminated"),
        ("{{ $value", 0, "not closed"),
        ("x" * (MAX_TEXT + 1), 0, "characters"),
    ],
)
def test_mistakes_have_a_place(template: str, position: int, told: str) -> None:
    with pytest.raises(TemplateError, match=told or None) as caught:
        parse_go(template)
    assert caught.value.position is not None
    if told:
        assert caught.value.position == position


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "can be called"),
        ("{{ labels.__class__ }}", ""),
        ("{{ value.__class__.__mro__ }}", "element"),
        ("{% include '/etc/passwd' %}", "not supported"),
        ("{% import 'os' as os %}", "not supported"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "not supported"),
        ("{{ lipsum.__globals__ }}", "unknown name"),
        ("{{ self }}", "unknown name"),
        ("{{ 'a' * 1000000000 }}", "numbers"),
        ("{{ 9 ** 9 ** 9 }}", "not supported"),
        ("{{ 9999999999 * 9999999999 * 9999999999 }}", "64 bits"),
        ("{{ 'x' | center(1000000000) }}", "unknown filter"),
        ("{{ '%1000000000d' | format(1) }}", "width"),
        ("{{ labels | attr('__class__') }}", "unknown filter"),
        ("{% for a in range(1000000000) %}{% endfor %}", "steps"),
        ("{% for a in range(999) %}{% for b in range(999) %}x{% endfor %}{% endfor %}", "steps"),
        ("{% set x = 'ab' %}" + "{% set x = x ~ x %}" * 40, "characters"),
        ("{{ labels.job }} {% if %}", "Expected an expression"),
        ("{{ " + "(" * 2000 + " }}", ""),
        ("{{ " + "9" * 4000 + " }}", ""),
        ("x" * 5000, "4096"),
    ],
)
def test_hostile_templates_of_our_own(template: str, told: str) -> None:
    if template == "{{ labels.__class__ }}":
        assert render(parse_jinja(template), DATA) == ""
        return
    with pytest.raises(TemplateError, match=told or None):
        render(parse_jinja(template), DATA)


WORDS = ("{{", "}}", "if", "end", "range", "$value", ".Labels", "|", "humanize", "\"", "(", ")", " ", "else", "with", "{%",
         "%}", "for", "in", "labels", "endfor", "x", ":=", "$x", "printf", "-", "1", ".", ",")  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(WORDS), max_size=30))
def test_any_template_is_rendered_or_refused_with_words(words: list[str]) -> None:
    for parse in (parse_go, parse_jinja):
        try:
            render(parse(" ".join(words)), DATA)
        except TemplateError as problem:
            told = problem.message
            if not told:
                pytest.fail(" ".join(words))


EXTERNAL = """
groups:
- name: g
  rules:
  - alert: Down
    expr: up < 1
    labels: {where: "{{ $externalLabels.site }}"}
    annotations: {summary: "{{ $labels.host }} of {{ .ExternalLabels.site }} at {{ externalURL }} {{ $externalURL }}"}
"""
OWN = """
rules:
- {name: own, expr: "fetch('up')", threshold: "< 1", missing: keep, annotations: {a: "{{ external_labels.site }} {{ external_url }}"}}
"""


def test_external_labels_and_url_are_those_of_the_engine(world: World) -> None:
    world.external_labels = {"site": "paris"}
    world.write(EXTERNAL, "prometheus.yaml")
    world.write(OWN)
    world.tick({"a": 0})
    of = {note.shown_name: note for note in world.notes()}
    assert dict(of["Down"].labels) == {"host": "a", "where": "paris"}
    assert of["Down"].summary == f"a of paris at {world.page} {world.page}"
    assert of["own"].annotations == (("a", f"paris {world.page}"),)
