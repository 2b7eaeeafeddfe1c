"""File of sources: errors name file, line and column."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from artimon.cli import app
from artimon.runtime.config_file import ConfigFileError, parse_config
from sources.base.source_errors import TargetError
from sources.scrape.config_sections import JobSection, JobTargets, RelabelSection, ScriptSection
from sources.scrape.sources_file import SourcesFile, read_sources, read_targets
from sources.scrape.target_files import END_AFTER_READS, TargetFiles
from sources.targets.prometheus_target import PrometheusTarget, ScrapeJob, parse_address

GOOD = """\
prometheus:
  - job: node
    targets: ["127.0.0.1:9100", "https://[::1]:9100/x?y=1"]
    files: [targets/*.json]
    labels: {team: infra}
    deadline: 2s
    max_bytes: 1MiB
    max_series: 2000
    honor_labels: true
    rules:
      - {source_labels: [__name__], regex: "go_.*", action: drop}
jmx:
  - {context: namenode, url: "http://127.0.0.1:9870/jmx", rules: [hdfs]}
jolokia:
  - {context: broker, instance: 1, url: "http://127.0.0.1:8778/jolokia/", rules: [jvm, kafka], method: get}
scripts:
  - name: backup
    command: [/usr/bin/env, printf, "%s"]
    period: 5m
    deadline: 10s
    format: prometheus
    environment: {LANG: C}
relabel:
  - {name: no-go, sources: "prometheus/.*", source_labels: [__name__], regex: "x", action: drop}
"""


def parse(text: str) -> SourcesFile:
    return parse_config(text, "s.yaml").validate(SourcesFile, folder=Path("/etc/artimon"))


def test_a_file() -> None:
    found = parse(GOOD)
    (pages,) = found.pages
    assert [target.url for target in pages.targets] == ["http://127.0.0.1:9100/metrics", "https://[::1]:9100/x?y=1"]
    assert [target.instance for target in pages.targets] == ["127.0.0.1:9100", "[::1]:9100"]
    assert pages.files == ("/etc/artimon/targets/*.json",)
    assert (pages.job.deadline_s, pages.job.max_bytes, pages.job.max_series) == (2.0, 1 << 20, 2_000)
    assert pages.job.rules[0].name == "node.rules[1]"
    assert pages.targets[0].labels == {"context": "node", "job": "node", "instance": "127.0.0.1:9100", "team": "infra"}
    assert found.jmx[0].rule_sets == ("hdfs",)
    (jolokia,) = found.jolokia
    assert (jolokia.url, jolokia.instance, jolokia.bulk) == ("http://127.0.0.1:8778/jolokia", "1", False)
    (script,) = found.scripts
    assert (script.period_ms, script.deadline_s, script.format) == (300_000, 10.0, "prometheus")
    assert found.rules[0].is_for("prometheus/node/x")
    assert not found.rules[0].is_for("shop/web1/0")
    assert parse("") == SourcesFile()


@pytest.mark.parametrize(
    ("old", "new", "where", "text"),
    [
        ("prometheus:", "prometeus:", "1:1", "did you mean prometheus"),
        ("job: node", "jobb: node", "2:5", "jobb: unknown key; did you mean job?"),
        ("job: node", "job: a/b", "2:10", "begin with a letter"),
        ('"127.0.0.1:9100"', '"127.0.0.1:99999"', "3:15", "Port out of range"),
        ('"127.0.0.1:9100"', '"ftp://x/"', "3:15", "want HOST:PORT"),
        ('"127.0.0.1:9100"', '"me:pw@x:1"', "3:15", "without user"),
        ('"127.0.0.1:9100"', '"https://[::1]:9100/y"', "3:39", "second time, first in line 3"),
        ("targets/*.json", "t*/x.json", "4:13", "only in its last part"),
        ("{team: infra}", "{te-am: infra}", "5:13", "label name 'te-am'"),
        ("2s", "2", "6:15", "write a number and a unit"),
        ("2s", "25h", "6:15", "want a time such as"),
        ("1MiB", "1GiB", "7:16", "want bytes such as"),
        ("2000", "200000", "8:17", "less than or equal to 100000"),
        ("true", "maybe", "9:19", "write true or false"),
        ("go_.*", "go_(", "11:44", "not valid RE2"),
        ("drop}\njmx", "drip}\njmx", "11:61", "unknown action 'drip'"),
        ("rules: [hdfs]", "rules: [hdsf]", "13:67", "write hbase or hdfs"),
        ("http://127.0.0.1:9870/jmx", "https://127.0.0.1:9870/jmx", "13:30", "plain http"),
        ("context: broker", "context: a b", "15:15", "write CONTEXT"),
        ("8778/jolokia/", "8778/jolokia?x=1", "15:41", "without user, query"),
        ("method: get", "method: put", "15:104", "write post or get"),
        ("[/usr/bin/env,", "[env,", "18:14", "absolute path"),
        ('[/usr/bin/env, printf, "%s"]', "/bin/sh -c ls", "18:14", "write a list, not"),
        ("LANG: C", "1X: C", "22:19", "is not the name of"),
        ("name: no-go", "name: 'node.rules[1]'", "24:12", "second time, first in line 11"),
        ("format: prometheus", "format: json", "21:13", "write lines or prometheus"),
        ("name: no-go, ", "name: no-go, action: keep, ", "24:98", "second time, first in line 24"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(old: str, new: str, where: str, text: str) -> None:
    changed = GOOD.replace(old, new, 1)
    assert changed != GOOD
    with pytest.raises(ConfigFileError) as caught:
        parse(changed)
    assert str(caught.value).startswith(f"s.yaml:{where}: "), str(caught.value)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "text", ["a: [", "\t", "- 1", "prometheus: 1", "prometheus: [{job: x}]", "x: &a 1\ny: *a", "a: 1\na: 2", "\x00"]
)
def test_what_is_no_such_file_is_an_error_with_a_place(text: str) -> None:
    with pytest.raises(ConfigFileError) as caught:
        parse(text)
    assert re.match(r"s.yaml:\d+:\d+: .", str(caught.value))


def test_a_file_that_everybody_may_write_runs_no_scripts(tmp_path: Path) -> None:
    file = tmp_path / "sources.yaml"
    file.write_text(GOOD)
    file.chmod(0o666)
    with pytest.raises(ConfigFileError, match="chmod o-w"):
        read_sources(file)
    file.chmod(0o664)
    assert read_sources(file).scripts
    file.write_text(re.sub(r"scripts:.*?relabel", "relabel", GOOD, flags=re.DOTALL))
    file.chmod(0o666)
    assert not read_sources(file).scripts


def test_a_file_of_targets(tmp_path: Path) -> None:
    job = ScrapeJob("node")

    def read(text: str, name: str = "t.json") -> tuple[PrometheusTarget, ...]:
        (tmp_path / name).write_text(text)
        return read_targets(tmp_path / name, job)

    found = read('[{"targets": ["a:1", "b:2"], "labels": {"env": "x", "__scheme__": "https"}}]')
    assert [(target.url, target.labels["env"]) for target in found] == [
        ("https://a:1/metrics", "x"),
        ("https://b:2/metrics", "x"),
    ]
    assert read("- targets: ['a:1']\n", "t.yaml")[0].address == "a:1"
    assert read("[]") == ()
    for bad in ("", "{}", "[1]", '[{"targets": "a:1"}]', '[{"targets": ["a:1", "a:1"]}]', '[{"labels": {}}]'):
        with pytest.raises(ConfigFileError, match=r"t\.json:1:\d+: "):
            read(bad)


@pytest.mark.parametrize(
    "text", ["", ":9100", "a b:1", "ü:1", "http://", "a:1#x", "[::1:9", "[zz]:1", "a:-1", "http://a:1/x\n"]
)
def test_bad_addresses(text: str) -> None:
    with pytest.raises(TargetError):
        parse_address(ScrapeJob("node"), text, {})


def test_a_password_in_an_address_is_not_shown() -> None:
    for text in ("me:pa55@x:1", "http://me:pa55@x:1/m", "https://me:pa55@x"):
        with pytest.raises(TargetError) as caught:
            parse_address(ScrapeJob("node"), text, {})
        assert "pa55" not in str(caught.value)


def test_the_examples_of_the_page_are_good() -> None:
    page = (Path(__file__).parents[2] / "docs" / "foreign.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 3
    whole, discovery, script = (parse(text) for text in examples)
    assert [one.job.name for one in discovery.scrape_configs] == ["pods"]
    assert discovery.scrape_config_files[0].agents == ("monitor-1", "monitor-2")
    assert (len(whole.pages), len(whole.jmx), len(whole.jolokia), len(whole.scripts), len(whole.rules)) == (
        1,
        1,
        1,
        1,
        1,
    )
    assert script.scripts[0].command[0] == "/bin/sh"


def test_a_deleted_file_of_a_pattern_is_forgotten_with_its_problem(tmp_path: Path) -> None:
    file, files, jobs = (
        tmp_path / "a.json",
        TargetFiles(),
        [JobTargets(ScrapeJob("node"), (), (str(tmp_path / "*.json"),))],
    )
    file.write_text('[{"targets": ["h:1"]}]')
    assert [target.instance for target in files.reload(jobs)[0]] == ["h:1"]
    file.unlink()
    for _ in range(END_AFTER_READS - 1):
        targets, problems = files.reload(jobs)
        assert (len(targets), problems) == (1, [f"job node: {file} does not exist"])
    assert files.reload(jobs) == ([], [f"job node: {file} does not exist"])
    assert files.reload(jobs) == ([], [])
    file.write_text('[{"targets": ["h:2"]}]')
    assert [target.instance for target in files.reload(jobs)[0]] == ["h:2"]


def test_the_page_names_every_setting() -> None:
    page = (Path(__file__).parents[2] / "docs" / "foreign.md").read_text()
    sections = (JobSection, RelabelSection, ScriptSection)
    assert [key for section in sections for key in section.model_fields if f"`{key}`" not in page] == []


def test_the_command_line_refuses_a_file_that_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "sources.yaml"
    file.write_text("prometheus:\n  - jobb: x\n")
    done = CliRunner().invoke(app, ["agent", "--sources", str(file)], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert "sources.yaml:2:5:" in done.output
