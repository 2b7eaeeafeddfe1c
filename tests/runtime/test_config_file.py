"""Configuration files: data with positions, limits before anything is built, and errors in the common form."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, model_validator
from pydantic_core import InitErrorDetails

from artimon.runtime.config_file import MAX_BYTES, ConfigFile, ConfigFileError, FileFormat, parse_config, read_config
from artimon.runtime.config_model import Section, Text, built, checked, choice, fault, parsed, raise_faults, repeated


def check_job(name: str) -> None:
    if "/" in name:
        raise ValueError("no / in it")


class JobSection(Section):
    job: Annotated[str, checked(check_job)] = Field(description="name each job")
    targets: tuple[Text, ...] = ()
    port: int = Field(default=0, ge=0, le=65_535)
    deep: bool = False
    level: Literal["kafka", "hdfs"] = "kafka"
    size: Annotated[int, parsed(int)] = 0
    speed: Annotated[int, choice({"slow": 1, "fast": 2})] = 1

    def build(self) -> str:
        if self.targets == ("x",):
            raise ValueError("x is not a target")
        return self.job

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        if "deep" in data and "level" in data:
            yield fault("`deep:` has no level: leave one out", "level")


class Document(Section):
    jobs: tuple[Annotated[str, built(JobSection)], ...] = Field(default=(), max_length=3, description="a list of jobs")
    labels: dict[Annotated[str, checked(check_job)], str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        raise_faults(repeated((f"job {job}", ("jobs", at, "job")) for at, job in enumerate(self.jobs)))
        return self


def problems(text: str, form: FileFormat = "yaml") -> list[str]:
    with pytest.raises(ConfigFileError) as caught:
        parse_config(text, "f", form).validate(Document)
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("line", "place", "told"),
    [
        ("{}", "2:3", "jobs[0].job: missing: name each job"),
        ("5", "2:3", "jobs[0]: write a mapping, not '5'"),
        ("{job: a/b}", "2:9", "jobs[0].job: no / in it"),
        ("{jbo: a, job: b}", "2:4", "jobs[0].jbo: unknown key; did you mean job?"),
        ("{job: a, deep: maybe}", "2:18", "jobs[0].deep: write true or false, not 'maybe'"),
        ("{job: a, deep: yes, level: hdfs}", "2:30", "jobs[0].level: `deep:` has no level: leave one out"),
        ("{job: a, level: disk}", "2:19", "jobs[0].level: write 'kafka' or 'hdfs', not 'disk'"),
        ("{job: a, speed: hi}", "2:19", "jobs[0].speed: 'hi': write slow or fast"),
        ("{job: a, port: 70000}", "2:18", "jobs[0].port: write a value less than or equal to 65535, not '70000'"),
        ("{job: a, port: x}", "2:18", "jobs[0].port: write a whole number, not 'x'"),
        ("{job: a, size: [1]}", "2:18", "jobs[0].size: write a text, not a list; put it in quotes if it holds { or ["),
        ("{job: a, targets: b}", "2:21", "jobs[0].targets: write a list, not 'b'"),
        ("{job: a, targets: [b, '']}", "2:25", "jobs[0].targets[1]: is empty"),
        ("{job: a, targets: [x]}", "2:3", "jobs[0]: x is not a target"),
        ("{job: a}\n- {job: a}", "3:9", "jobs[1].job: job a is defined a second time, first in line 2"),
        ("{job: a, job: b}", "2:12", "'job' is defined a second time, first in line 2"),
        ("{job: &a b}", "2:9", "anchors and aliases (& and *) are not allowed: write it out"),
        ("{job: !!python/name:os.system b}", "2:9", "is not allowed; put a text with ! in quotes"),
        ("{job: a, \x07: b}", "1:1", "not YAML: "),
    ],
)
def test_an_error_says_where_what_and_what_to_do(line: str, place: str, told: str) -> None:
    found = problems(f"jobs:\n- {line}\n")
    assert any(one.startswith(f"f:{place}: ") and told in one for one in found), found


def test_all_errors_are_reported_sorted_by_position() -> None:
    text = "jobs:\n- {job: a/b, port: x, deep: 5}\n- {}\nlabels: {a/b: [1]}\nlables: 1\n"
    assert [":".join(one.split(":")[1:3]) for one in problems(text)] == [
        "2:9",
        "2:20",
        "2:29",
        "3:3",
        "4:10",
        "4:15",
        "5:1",
    ]


@pytest.mark.parametrize(
    ("text", "form", "place", "told"),
    [
        ("jobs: 5", "yaml", "1:7", "write a list, not '5': a list of jobs"),
        ("jobs: [{job: a},{job: b},{job: c},{job: d}]", "yaml", "1:7", "more than 3 entries"),
        ("- a", "yaml", "1:1", "write a mapping, not a list"),
        ("a: 1\n---\na: 1", "yaml", "2:1", "a second document"),
        ("[a]: 1", "yaml", "1:1", "a key must be a word"),
        ("jobs: [", "yaml", "1:8", "not YAML"),
        ("\tjobs: []", "yaml", "1:1", "indent with spaces"),
        ("[" * 20_000, "yaml", "1:17", "nested more than 16 deep"),
        ("x" * (MAX_BYTES + 1), "yaml", "1:1", "split the file"),
        ("{", "json", "1:2", "not JSON"),
        ('{"a":' * 100_000, "json", "1:", "nested more than 16 deep"),
        ('{"jobs": [],\n "jobs": []}', "json", "2:2", "second time"),
        ('{"jobs": [{"job": "\\ud83d\\ude00\\/",\n"port": "\\n"}]}', "json", "2:9", "write a whole number"),
        ('{"\\ud800": 1}', "json", "1:", "write a text in UTF-8"),
        ('{"labels": {"%s"\n: 1}}' % ("x" * 2000), "json", "1:", "write a text, not 1"),
        ("[[jobs]\n", "toml", "1:", "not TOML"),
        ("a = " + "[" * 100_000, "toml", "1:1", "not TOML"),
        ('[[jobs]]\njob = "a"\n\n[[jobs]]\njob = "b"\nport = 70_000', "toml", "6:1", "less than or equal"),
        ('[[jobs]]\njob = """\na\nport = 1\n"""\nport = "x"', "toml", "6:1", "write a whole number"),
        ('[labels]\n"x y" = 1', "toml", "2:1", "labels.x y: write a text, not 1"),
        ("[labels]\nx.y = 1", "toml", "2:1", "labels.x: write a text, not a mapping"),
        ("jobs = [{ job = 5 }]", "toml", "1:1", "jobs[0].job: write a text, not 5"),
    ],
)
def test_forms_and_limits(text: str, form: FileFormat, place: str, told: str) -> None:
    found = problems(text, form)
    assert any(one.startswith(f"f:{place}") and told in one for one in found), found


def test_a_good_file_in_each_form() -> None:
    good: dict[FileFormat, str] = {
        "yaml": "jobs: [{job: '010', port: 80}]\nlabels: {no: no}",
        "json": '{"jobs": [{"job": "010", "port": 80}], "labels": {"no": "no"}}',
        "toml": 'jobs = [{ job = "010", port = 80 }]\n[labels]\nno = "no"',
    }
    for form, text in good.items():
        document = parse_config(text, "f", form).validate(Document)
        assert (document.jobs, document.labels) == (("010",), {"no": "no"})
    assert parse_config("# nothing\n", "f").validate(Document) == Document()


def test_positions_inside_a_scalar() -> None:
    file = parse_config("a: 'xyz'\nb: |\n  one\n   two\nc: \"\\x41b\"\nd: é xyz\n", "f")
    assert file.position(("a",), 1) == (1, 6)
    assert file.position(("b",), 6) == (4, 5)
    assert file.position(("c",), 1) == (5, 4), "escapes: the position of the scalar"
    assert file.position(("d",), 2) == (6, 6)
    assert file.position(("d", "[key]")) == (6, 1)
    assert file.position(("e", 5)) == (1, 1)


def test_data_without_a_text_has_no_positions() -> None:
    with pytest.raises(ConfigFileError, match=r"^pushed: jobs\[0\]\.job: missing"):
        ConfigFile("pushed", {"jobs": [{}], "other": 1}).without(["other"]).validate(Document)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: \xe9\n")
    with pytest.raises(ConfigFileError, match=r"latin\.yaml:2:4: not UTF-8"):
        read_config(tmp_path / "latin.yaml")
    with pytest.raises(ConfigFileError, match=r"none\.toml:1:1: cannot be read: No such file"):
        read_config(tmp_path / "none.toml")


@settings(deadline=None)
@given(
    st.text(max_size=200) | st.text(alphabet="jobs:-targl {}[]&*!|>'\"\n #%@`,?=", max_size=300),
    st.sampled_from(["yaml", "toml", "json"]),
)
def test_any_text_is_read_or_refused(text: str, form: FileFormat) -> None:
    found = []
    try:
        parse_config(text, "f", form).validate(Document)
    except ConfigFileError as error:
        found = error.problems
    assert all(str(problem).startswith("f:") and problem.text for problem in found)
