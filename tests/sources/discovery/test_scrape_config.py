"""Files of Prometheus: what is read, what is left out and named with its line, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from artimon.runtime.config_file import ConfigFileError
from sources.scrape.discovery.prometheus_duration import parse_prometheus_duration, print_prometheus_duration
from sources.scrape.discovery.scrape_config import read_prometheus_file
from sources.scrape.scrape_manager import ReloadedSourcesFile
from sources.scrape.sources_file import read_jobs, read_sources

FILE = """\
global:
  scrape_interval: 15s
  external_labels: {monitor: one}
rule_files: ["*.rules"]
scrape_configs:
  - job_name: team/node exporter
    honor_timestamps: false
    scrape_timeout: 10s
    sample_limit: 0
    body_size_limit: 10MB
    authorization: {credentials_file: token}
    tls_config: {ca_file: ca.pem, insecure_skip_verify: true}
    static_configs:
      - targets: [localhost:9090]
        labels: {password: shown}
    ec2_sd_configs: [{region: eu}]
    metric_relabel_configs:
      - {source_labels: [__name__], regex: "go_.*", action: drop}
  - job_name: consul
    consul_sd_configs:
      - {server: "localhost:8500", token: secret}
"""


def write(folder: Path, text: str, name: str = "prometheus.yml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_what_both_have_is_read_and_the_rest_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, FILE)
    first, second = read_prometheus_file(path)
    assert (first.job.name, first.interval_ms, first.job.deadline_s) == ("team/node exporter", 15_000, 10.0)
    assert (first.job.max_bytes, first.job.max_series) == (10 << 20, 50_000)
    assert first.job.access.bearer_token_file == tmp_path / "token"
    assert first.job.access.ca == tmp_path / "ca.pem"
    assert first.job.rules[0].action == "drop"
    ((target,), _) = first.targets(first.discoveries[0].groups[0])  # type: ignore[attr-defined]
    assert target.labels["password"] == "shown"
    assert target.source("") == "prometheus/team%2Fnode exporter/localhost:9090"
    assert (second.interval_ms, second.timeout_ms) == (15_000, 10_000)
    notes = [note.removeprefix(f"{path}:") for note in first.notes]
    assert [note.partition(" is")[0] for note in notes] == [
        "3:3: `external_labels:`",
        "4:1: `rule_files:`",
        "7:5: `honor_timestamps:`",
        "12:35: `insecure_skip_verify:`",
        "16:5: `ec2_sd_configs:`",
        "21:36: `token:`",
    ]
    assert "there is discovery by static, file, http, dns, consul, kubernetes" in notes[4]


@pytest.mark.parametrize(
    ("old", "new", "where", "text"),
    [
        ("scrape_timeout: 10s", "scrape_timeout: 20s", "6:5", "longer than"),
        ("scrape_timeout: 10s", "scrape_timeout: 1x", "8:21", "want a duration"),
        ("ec2_sd_configs: [{region: eu}]", "ec3: 1", "16:5", "unknown key"),
        ("ec2_sd_configs: [{region: eu}]", "dns_sd_configs: [{names: [a], type: A}]", "16:22", "need a `port:`"),
        ("ec2_sd_configs: [{region: eu}]", "http_sd_configs: [{url: 'ftp://x'}]", "16:29", "want http"),
        ("ec2_sd_configs: [{region: eu}]", "file_sd_configs: [{files: [x.txt]}]", "16:32", "want a path"),
        ("ec2_sd_configs: [{region: eu}]", "kubernetes_sd_configs: [{role: ingress}]", "16:36", "write pod or"),
        ("{password: shown}", "{a-b: x}", "15:17", "a-b"),
        ("job_name: consul", "job_name: ''", "19:15", "empty"),
        ('"go_.*"', '"("', "18:44", "not valid RE2"),
    ],
)
def test_errors_have_a_position(old: str, new: str, where: str, text: str, tmp_path: Path) -> None:
    path = write(tmp_path, FILE.replace(old, new))
    with pytest.raises(ConfigFileError) as found:
        read_prometheus_file(path)
    assert str(found.value).startswith(f"{path}:{where}: ")
    assert text in str(found.value)


def test_jobs_stand_in_the_file_of_sources_or_in_files_that_it_names(tmp_path: Path) -> None:
    write(tmp_path, FILE)
    inline = "scrape_configs:\n  - {job_name: own, enable_http2: true, static_configs: [{targets: [a]}], agents: [x]}\n"
    text = inline + "scrape_config_files:\n  - {file: prometheus.yml, agents: [a1, a2]}\n"
    content = read_sources(write(tmp_path, text, "sources.yaml"))
    jobs = read_jobs(content)
    assert [(one.job.name, one.agents) for one in jobs] == [
        ("own", ("x",)),
        ("team/node exporter", ("a1", "a2")),
        ("consul", ("a1", "a2")),
    ]
    assert "sources.yaml:2:21: `enable_http2:` is left out: has no effect here" in jobs[0].notes[0]
    twice = text.replace("job_name: own", "job_name: consul")
    with pytest.raises(ConfigFileError, match="job consul is also in the file of sources"):
        read_jobs(read_sources(write(tmp_path, twice, "sources.yaml")))


def test_a_named_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = write(tmp_path, FILE)
    file = ReloadedSourcesFile(write(tmp_path, "scrape_config_files: [{file: prometheus.yml}]\n", "sources.yaml"))
    assert [one.job.name for one in file.jobs] == ["team/node exporter", "consul"]
    path.write_text("scrape_configs: [{job_name: other}]\n")
    file.reload()
    assert [one.job.name for one in file.jobs] == ["other"]
    path.write_text("scrape_configs: [{job_name: [}]\n")
    file.reload()
    assert "the previous content stays in use" in file.problem
    assert [one.job.name for one in file.jobs] == ["other"]


@pytest.mark.parametrize(
    ("text", "ms", "shown"),
    [("1h30m", 5_400_000, "1h30m"), ("90m", 5_400_000, "1h30m"), ("7d", 604_800_000, "1w"), ("8d", 691_200_000, "8d"),
     ("1y", 31_536_000_000, "1y"), ("0", 0, "0s"), ("15s1ms", 15_001, "15s1ms")],
)  # fmt: skip
def test_durations(text: str, ms: int, shown: str) -> None:
    assert parse_prometheus_duration(text) == ms
    assert print_prometheus_duration(ms) == shown


@pytest.mark.parametrize("text", ["", "s", "1", "1.5h", "1m1h", " 1s", "-1s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="want a duration"):
        parse_prometheus_duration(text)
