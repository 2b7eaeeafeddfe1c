"""Questions from the command line against the running stack, good and bad."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from urllib.parse import urlencode

import pytest

from artimon.stack.stack import Stack
from tests.forked import run_forked
from tests.waiting import eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]


def artimon(stack: Stack, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `artimon WORDS` against the stack."""
    return run_forked("artimon.cli", *words, "--data", str(stack.data))


CPU = "fetch('host.cpu.ms').increase().sum(by=['cpu'])"


def answered(stack: Stack, text: str) -> list[object]:
    answer = artimon(stack, "query", text, "--json")
    return list(json.loads(answer.stdout)["series"]) if answer.returncode == 0 else []


@pytest.fixture(scope="module")
def host_known(whole_stack: Stack) -> None:
    """The first minute of this host has been settled."""
    eventually(lambda: answered(whole_stack, CPU), seconds=180, pause=2)


def test_each_cpu_has_one_row(whole_stack: Stack, host_known: None) -> None:
    assert len(answered(whole_stack, CPU)) == os.cpu_count()


def test_the_api_answers_the_same(whole_stack: Stack, host_known: None) -> None:
    address = f"{whole_stack.addresses()['ARTIMON_API']}/api/query?{urlencode({'q': CPU})}"
    with urllib.request.urlopen(address, timeout=30) as answer:
        matrix = json.load(answer)
    assert len(matrix["series"]) == os.cpu_count()
    assert not matrix["partial"]
    assert any(value is not None for value in matrix["series"][0]["values"])


def test_find_lists_canonical_texts(whole_stack: Stack, host_known: None) -> None:
    answer = artimon(whole_stack, "find", 'host.cpu.ms{mode="idle"}')
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert len(lines) == os.cpu_count()
    assert all(line.startswith("host.cpu.ms{") and 'mode="idle"' in line and "counter" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fetch('host.cpu.ms').raet()", "rate"),
        ("fetch('host.cpu.msec')", "host.cpu.ms"),
        ("fetch('host.cpu.ms{mod=\"idle\"}')", "mode"),
        ("fetch('host.cpu.ms{mode=\"idel\"}')", "idle"),
        ("fetch('host.cpu.ms').sum(by=['cpus'])", "cpu"),
        ("fetch('host.cpu.ms'", "^"),
        ("__import__('os').system('true')", "^"),
    ],
)
def test_a_bad_question_gets_a_clear_answer(whole_stack: Stack, host_known: None, text: str, told: str) -> None:
    answer = artimon(whole_stack, "query", text)
    assert answer.returncode == 1
    assert not answer.stdout
    assert told in answer.stderr
    assert "Traceback" not in answer.stderr


def test_status_says_how_every_hop_is(whole_stack: Stack, host_known: None) -> None:
    def healthy() -> bool:
        """Other tests kill parts of this stack: their problems end."""
        answer = artimon(whole_stack, "status", "--json")
        status = json.loads(answer.stdout)
        assert {part["name"] for part in status["parts"]} >= {"agent", "collector-0", "spark", "shard-0", "shard-1"}
        assert (answer.returncode == 0) == (not status["problems"])
        return answer.returncode == 0

    eventually(healthy, "a healthy stack")


def test_env_is_shell(whole_stack: Stack) -> None:
    answer = artimon(whole_stack, "env")
    assert f"export ARTIMON_ZOOKEEPER={whole_stack.zookeeper}" in answer.stdout
