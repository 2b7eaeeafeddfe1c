"""Commands for the access file: tokens of programs, hashes of passwords, check."""

from __future__ import annotations

import getpass
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from artimon.cli.common import JsonOption, Panel, as_usage_error, escape_control, exits, print_error, user_name
from artimon.model.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from artimon.access.access_file import Access
    from artimon.access.audit_log import AuditLog
    from artimon.access.token_file import TokenFile

PANEL = Panel.OPERATE
app = typer.Typer()
tokens_app = typer.Typer(no_args_is_help=True, help="Tokens and passwords for the API (docs/access.md).")
app.add_typer(tokens_app, name="tokens")

AccessOption = Annotated[Path, typer.Option("--access", help="Access file of the API; it names the file of tokens.")]


def _open(file: Path) -> tuple[Access, TokenFile, AuditLog]:
    from artimon.access.access_file import read_access
    from artimon.access.audit_log import AuditLog
    from artimon.access.token_file import TokenFile, TokenFileError
    from artimon.runtime.config_file import ConfigFileError

    with exits(ConfigFileError, TokenFileError):
        access = read_access(file)
        if access.tokens is None:
            raise TokenFileError(f"{file} has no key `tokens`: write tokens: FILE")
        return access, TokenFile(access.tokens), AuditLog(access.audit)


@tokens_app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Name of the program that uses it, for lists and logs.")],
    access: AccessOption,
    role: Annotated[str, typer.Option(help="Role: viewer, editor, admin, or one of the access file.")] = "viewer",
    scope: Annotated[
        list[str] | None, typer.Option(help="Area: query, alerts, status or dashboards; may be repeated. Default: all.")
    ] = None,
    expires: Annotated[str, typer.Option(help="Lifetime, such as 90d; never: no expiry.")] = "90d",
) -> None:
    """Create a token and print it. It is shown once: only its hash is stored."""
    from artimon.access.principal import Area
    from artimon.access.token_file import TokenFileError
    from artimon.runtime.text import did_you_mean, parse_duration
    from query_dsl.tree.times import format_time

    found, tokens, audit = _open(access)
    if role not in found.roles:
        raise typer.BadParameter(f"--role {role!r:.80}: unknown role{did_you_mean(role, found.roles)}")
    known = [area.value for area in Area]
    for one in scope or ():
        if one not in known:
            raise typer.BadParameter(f"--scope {one!r:.80}: unknown{did_you_mean(one, known)}")
    now_ms = SYSTEM_CLOCK.now_ms()
    until_ms = 0 if expires == "never" else now_ms + as_usage_error(parse_duration, expires)
    with exits(TokenFileError, OSError):
        areas = [Area(one) for one in dict.fromkeys(scope or ())]
        made, text = tokens.create(name, role, now_ms, scopes=areas, expires_ms=until_ms, author=user_name())
    audit.write("token.created", None, user=user_name(), token=made.id, name=name, role=role)
    ends = f"until {format_time(until_ms)}" if until_ms else "without expiry"
    print_error(f"artimon: token {made.id} for {escape_control(name)}, role {role}, {ends}. It is not shown again:")
    print(text)


@tokens_app.command("list")
def list_tokens(access: AccessOption, as_json: JsonOption = False) -> None:
    """List the tokens: id, name, role, scopes, expiry."""
    from query_dsl.tree.times import format_time

    records, now_ms = _open(access)[1].records(), SYSTEM_CLOCK.now_ms()
    if as_json:
        print(json.dumps([{k: v for k, v in asdict(one).items() if k != "digest"} for one in records], indent=1))
        return
    for one in records:
        ends = f"until {format_time(one.expires_ms)}" if one.expires_ms else "without expiry"
        state = ends if one.is_valid(now_ms) else f"expired {format_time(one.expires_ms)}"
        print(escape_control("  ".join([one.id, one.name, one.role, ",".join(one.scopes) or "all", state, one.author])))


@tokens_app.command("revoke")
def revoke(
    ids: Annotated[list[str], typer.Argument(help="Ids of `artimon tokens list`, or whole tokens.")],
    access: AccessOption,
) -> None:
    """Revoke tokens. Every API that reads the file refuses them at its next request."""
    from artimon.access.token_file import TokenFileError

    _, tokens, audit = _open(access)
    with exits(TokenFileError, OSError):
        for one in ids:
            gone = tokens.revoke(one.split("_")[1] if one.count("_") >= 2 else one)
            audit.write("token.revoked", None, user=user_name(), token=gone.id, name=gone.name)


@tokens_app.command("password")
def password() -> None:
    """Read a password, from the terminal or standard input, and print its hash for the access file."""
    from artimon.access.passwords import hash_password

    if sys.stdin.isatty():
        given = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != given:
            print_error("artimon: the passwords differ")
            raise typer.Exit(1)
    else:
        given = sys.stdin.readline().rstrip("\n")
    with exits(ValueError):
        print(hash_password(given))


@tokens_app.command("check")
def check(access: Annotated[Path, typer.Argument(help="Access file.")]) -> None:
    """Check an access file: errors with line and column, else its roles and logins."""
    from artimon.access.access_file import read_access
    from artimon.runtime.config_file import ConfigFileError

    with exits(ConfigFileError):
        found = read_access(access)
    for role in found.roles.values():
        seen = ",".join(f"{one.label}{one.op}{json.dumps(one.value)}" for one in role.sees) or "all series"
        print(escape_control(f"{role.name}  {role.level.name.lower()}  {seen}"))
    ways = {"password": any(one.password for one in found.users.values()), "token": found.tokens is not None}
    ways |= {"OpenID Connect": found.oidc is not None, "proxy": found.proxy is not None}
    print(f"{len(found.users)} users; login by {', '.join(name for name, there in ways.items() if there)}")
