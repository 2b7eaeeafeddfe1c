"""`artimon tokens`: create, list, revoke, password, check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from artimon.access.passwords import parse_password_hash
from artimon.access.token_file import TokenFile
from artimon.cli import app
from artimon.model.clock import SYSTEM_CLOCK
from tests.access.asgi_client import ACCESS, PASSWORD


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "access.yaml"
    path.write_text(ACCESS)
    return path


def run(*words: str | Path, given: str = "") -> Result:
    return CliRunner().invoke(app, ["tokens", *map(str, words)], input=given)


def test_a_token_is_created_listed_and_revoked(file: Path) -> None:
    made = run("create", "grafana", "--access", file, "--role", "shop", "--scope", "query", "--expires", "30d")
    assert made.exit_code == 0, made.output
    text = made.stdout.strip()
    tokens, now_ms = TokenFile(file.parent / "tokens.json"), SYSTEM_CLOCK.now_ms()
    record = tokens.verify(text, now_ms)
    assert record is not None
    assert (record.name, record.role, record.scopes) == ("grafana", "shop", ("query",))
    assert 29 < (record.expires_ms - now_ms) / 86_400_000 < 30
    listed = run("list", "--access", file)
    assert f"{record.id}  grafana  shop  query  until" in listed.stdout
    assert "digest" not in run("list", "--access", file, "--json").stdout
    assert run("revoke", text, "--access", file).exit_code == 0
    assert tokens.verify(text, now_ms) is None
    assert run("revoke", record.id, "--access", file).exit_code == 1
    lines = [json.loads(line) for line in (file.parent / "audit.jsonl").read_text().splitlines()]
    assert [one["action"] for one in lines] == ["token.created", "token.revoked"]
    assert text not in (file.parent / "audit.jsonl").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--role", "viwer"), "did you mean viewer"),
        (("--scope", "quary"), "did you mean query"),
        (("--expires", "soon"), "soon"),
    ],
)
def test_wrong_words_are_named(file: Path, words: tuple[str, ...], says: str) -> None:
    found = run("create", "a", "--access", file, *words)
    assert found.exit_code == 2
    assert says in " ".join(found.output.split())
    assert not (file.parent / "tokens.json").exists()


def test_an_access_file_without_tokens_says_so(tmp_path: Path) -> None:
    file = tmp_path / "access.yaml"
    file.write_text("proxy: {addresses: [10.0.0.1], default_role: viewer}\n")
    found = run("create", "a", "--access", file)
    assert found.exit_code == 1
    assert "has no key `tokens`" in found.output


def test_a_password_is_hashed_and_not_shown() -> None:
    found = run("password", given=f"{PASSWORD}\n")
    assert found.exit_code == 0
    assert parse_password_hash(found.stdout.strip()).matches(PASSWORD)
    assert PASSWORD not in found.output
    assert run("password", given="short\n").exit_code == 1


def test_check_tells_roles_or_errors(file: Path) -> None:
    found = run("check", file)
    assert found.exit_code == 0
    assert 'shop  viewer  route="/a"' in found.stdout
    assert "4 users; login by password, token, proxy" in found.stdout
    file.write_text("users: 1")
    broken = run("check", file)
    assert broken.exit_code == 1
    assert f"{file}:1:" in broken.output
