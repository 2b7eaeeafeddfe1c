"""A client in Perl, made from the IDL by Apache Thrift's compiler, asks the seed's question."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.hash_routing import ownership, virtual_shard
from artimon.runtime import settings
from query_dsl import Matrix, evaluate, parse
from tests.access.asgi_client import ACCESS, opened
from tests.access.test_servers import matrix
from tests.api import memcached
from tests.api.serving import NOW, Client, served
from tests.api.test_matrix import QUESTION, cached_shard
from tests.programs import require
from tests.query_dsl.plain_store import MINUTE
from tests.varstore.test_server import MEMBERS, Cluster, cluster, cluster_store  # noqa: F401
from tests.waiting import eventually
from varstore.cluster.varstore_client import VarstoreClient

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "clients" / "perl" / "matrix.pl"
IDL = ROOT / "artimon" / "api" / "matrix.thrift"
Ask = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the generated code."""
    thrift, folder = require("thrift"), tmp_path_factory.mktemp("perl")
    environment = settings.child_environment(thrift.environment)
    subprocess.run([thrift.path, "-strict", "--gen", "perl", "-out", folder, IDL], check=True, env=environment)
    return folder


@pytest.fixture(scope="module")
def ask_perl(generated: Path) -> Ask:
    """Runs the client against a port."""
    perl = require("perl-thrift")

    def run(port: int, *words: str, token: str = "") -> subprocess.CompletedProcess[str]:
        own = {"ARTIMON_MATRIX": f"127.0.0.1:{port}", "ARTIMON_TOKEN": token}
        environment = settings.child_environment({**perl.environment, **own})
        command = [str(perl.path), "-I", str(generated), str(SCRIPT), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.fixture(scope="module")
def cached() -> Iterator[Client]:
    with served(cached_shard()) as client:
        yield client


def printed(matrix: Matrix) -> list[str]:
    """The lines that the client must print for a matrix."""
    return ["\t".join([name, *(_cell(value) for value in values)]) for name, values in matrix]


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.17g}"
        case str():
            return value.replace("\\", "\\\\").replace("\t", "\\t")
    return str(value)


def test_the_seeds_question_from_perl(ask_perl: Ask, cached: Client) -> None:
    done = ask_perl(cached.thrift_port, "memcached.*", "600000", "dc=jb")
    assert done.returncode == 0, done.stderr
    matrix = evaluate(parse(QUESTION), cached_shard(), NOW)
    assert done.stdout.splitlines() == printed(matrix)
    assert str(memcached.BIG + 11) in done.stdout  # beyond 2^53, exact
    assert len(matrix) == 5
    assert done.stderr == ""


def test_a_question_in_the_language_from_perl(ask_perl: Ask, cached: Client) -> None:
    text = "fetch('memcached.items').max(by=['dc']).range('3m')"
    done = ask_perl(cached.thrift_port, "--query", text)
    assert done.stdout.splitlines() == printed(evaluate(parse(text), cached_shard(), NOW))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--query", "fetch('memcached.items').raet()"), "refused (bad) at character 25: unknown function .raet()"),
        (("memcached.items", "0"), "refused (bad): last_ms"),
        (("memcached.itms", "60000"), "memcached.items"),
        (("memcached.items",), "usage"),
    ],
)
def test_what_is_wrong_is_told_in_perl(ask_perl: Ask, cached: Client, words: tuple[str, ...], told: str) -> None:
    done = ask_perl(cached.thrift_port, *words)
    assert done.returncode != 0
    assert done.stdout == ""
    assert told in done.stderr


def test_a_token_from_perl(ask_perl: Ask, tmp_path: Path) -> None:
    access = opened(ACCESS, tmp_path)
    assert access.tokens is not None
    _, text = access.tokens.create("perl", "shop", NOW)
    with matrix(access) as port:
        done = ask_perl(port, "http.requests", "600000", token=text)
        assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ['http.requests{route="/a"}'], (
            done.stderr
        )
        assert "refused (unauthorized): call authenticate" in ask_perl(port, "http.requests", "600000").stderr
        assert "refused (unauthorized): the token" in ask_perl(port, "http.requests", "600000", token="x").stderr


def test_nobody_there_is_told(ask_perl: Ask) -> None:
    done = ask_perl(1, "memcached", "60000")
    assert done.returncode != 0
    assert "connect" in done.stderr


@pytest.mark.stack
def test_the_seeds_question_to_shard_processes(ask_perl: Ask, cluster: Cluster, cluster_store: VarstoreClient) -> None:  # noqa: F811
    """Announced through Kafka, found through ZooKeeper, fed to the shard that owns the source."""
    source = next(f"s{i}" for i in range(1_000) if virtual_shard(f"s{i}") in ownership(MEMBERS)["0"])
    batches = memcached.log(source, SYSTEM_CLOCK.now_ms() // MINUTE * MINUTE - MINUTE)
    cluster.announce(memcached.blocks(source))
    cluster.feed("0", batches, 0, len(batches))
    eventually(lambda: len(cluster_store.names()) == 5)
    with served(cluster_store, clock=SYSTEM_CLOCK) as client:
        before = evaluate(parse(QUESTION), cluster_store, SYSTEM_CLOCK.now_ms())
        done = ask_perl(client.thrift_port, "memcached.*", "600000", "dc=jb")
        after = evaluate(parse(QUESTION), cluster_store, SYSTEM_CLOCK.now_ms())
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() in (printed(before), printed(after))
    assert len(done.stdout.splitlines()) == 5
