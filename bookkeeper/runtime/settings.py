"""Settings from the environment and from `configure`. The only place of this package that reads the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from bookkeeper.runtime.limits import SERIES, SERIES_PER_NAME

ZOOKEEPER = "127.0.0.1:2181"
DROPIN = "/var/run/artimon"
FINAL_FOLDER = "final"
"""In the folder of drop-in files, made by the agent."""
NAME_BYTES = 255
MAX_SERIES = 10_000_000


class SettingsError(ValueError):
    """A setting that cannot be used; says which, and what to do."""


@dataclass(frozen=True)
class Settings:
    """What `configure` was given, or else the environment, or else the default.

    `instance` None: the lowest free number. `advertise` None: the address that leads to ZooKeeper. `bind` None: the
    advertised address. `run`: the folder of the instance locks."""

    context: str
    zookeeper: str = ZOOKEEPER
    instance: str | None = None
    advertise: str | None = None
    bind: str | None = None
    run: str = ""
    disabled: bool = False
    secure_polls: bool = False
    """Pollers must show what `security` wants."""
    zookeeper_auth: str = ""
    """A file that holds user:password of ZooKeeper; "" for none."""
    dropin: str = ""
    """Folder of drop-in files; the final snapshot goes into its folder `final`."""
    openmetrics: str = ""
    """Where Prometheus may read the variables: `[host:]port[-port]`; "" for nowhere."""


def read(
    given: Mapping[str, str | None], environment: Mapping[str, str] | None = None, *, lenient: bool = False
) -> Settings:
    """Settings from what was `given` by hand, then the environment.

    A context or instance that is not allowed raises SettingsError; if `lenient`, such a context gives way to the
    program's name and such an instance to a number. The program's name is made to fit."""
    env = os.environ if environment is None else environment

    def one(name: str) -> str | None:
        return given.get(name) or env.get("ARTIMON_" + name.upper()) or None

    context = one("context")
    instance = one("instance")
    if lenient:
        context = context if context is None or _allowed("context", context) else None
        instance = instance if instance is None or _allowed("instance", instance) else None
    return Settings(
        context=fitting(program_name()) if context is None else checked("context", context),
        zookeeper=one("zookeeper") or ZOOKEEPER,
        instance=None if instance is None else checked("instance", instance),
        advertise=one("advertise"),
        bind=one("bind"),
        run=one("run") or default_run_folder(),
        disabled=_yes(env.get("ARTIMON_DISABLED", "")) or _yes(env.get("ARTIMON_OFF", "")),
        secure_polls=_yes(env.get("ARTIMON_SECURE_POLLS", "")),
        zookeeper_auth=env.get("ARTIMON_ZOOKEEPER_AUTH") or "",
        dropin=dropin_folder(environment=env),
        openmetrics=one("openmetrics") or "",
    )


@dataclass(frozen=True)
class Switches:
    """What the environment says of counting itself. `off`: nothing is counted, served or registered. `strict`: refused
    calls raise. `series`, `series_per_name`: limits. `problems`: settings that could not be used, and what to do."""

    off: bool = False
    strict: bool = False
    series: int = SERIES
    series_per_name: int = SERIES_PER_NAME
    problems: tuple[str, ...] = ()


def switches(environment: Mapping[str, str] | None = None) -> Switches:
    """ARTIMON_OFF, ARTIMON_STRICT, ARTIMON_SERIES, ARTIMON_SERIES_PER_NAME."""
    env = os.environ if environment is None else environment
    problems: list[str] = []

    def limit(name: str, default: int) -> int:
        given = env.get(name, "").strip()
        if not given:
            return default
        if given.isascii() and given.isdigit() and 0 < int(given) <= MAX_SERIES:
            return int(given)
        problems.append(f"{name}={given[:40]!r}: give a number from 1 to {MAX_SERIES}; {default} is used")
        return default

    return Switches(
        off=_yes(env.get("ARTIMON_OFF", "")),
        strict=_yes(env.get("ARTIMON_STRICT", "")),
        series=limit("ARTIMON_SERIES", SERIES),
        series_per_name=limit("ARTIMON_SERIES_PER_NAME", SERIES_PER_NAME),
        problems=tuple(problems),
    )


def environment() -> Mapping[str, str]:
    """Environment of the process, for parts that read variables of their own (bookkeeper/rpc/security.py)."""
    return os.environ


def checked(what: str, name: str) -> str:
    """`name` itself if it may stand in a path of ZooKeeper, else SettingsError."""
    problem = ""
    if not isinstance(name, str):
        raise SettingsError(f"{what} {name!r:.80} is of type {type(name).__name__}: give a str")
    if not name or name in (".", ".."):
        problem = "give it a name"
    elif any(_bad(character) for character in name):
        problem = "leave out / and control characters"
    elif len(name.encode("utf-8")) > NAME_BYTES:
        problem = f"use at most {NAME_BYTES} bytes of UTF-8"
    if problem:
        raise SettingsError(f"{what} {name!r:.80}: {problem}")
    return name


def dropin_folder(given: str | os.PathLike[str] | None = None, environment: Mapping[str, str] | None = None) -> str:
    """The folder of drop-in files: `given`, else ARTIMON_DROPIN, else the default."""
    env = os.environ if environment is None else environment
    return os.fspath(given) if given is not None else env.get("ARTIMON_DROPIN") or DROPIN


def _yes(text: str) -> bool:
    return text.lower() in ("1", "true", "yes", "on")


def digest(file: str) -> str:
    """user:password of a file. Raises SettingsError."""
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"ARTIMON_ZOOKEEPER_AUTH: {error}") from None
    user, colon, password = text.partition(":")
    if not user or not colon or not password or "\n" in text:
        raise SettingsError(f"ARTIMON_ZOOKEEPER_AUTH: {file} must hold one line, user:password")
    return text


def _allowed(what: str, name: str) -> bool:
    try:
        checked(what, name)
    except SettingsError:
        return False
    return True


def fitting(name: str) -> str:
    """`name` with what a path of ZooKeeper does not allow replaced by _."""
    fit = "".join("_" if _bad(character) else character for character in name)
    fit = fit.encode("utf-8")[:NAME_BYTES].decode("utf-8", "ignore")
    return fit if fit.strip(".") else "python"


def _bad(character: str) -> bool:
    code = ord(character)
    return (
        character == "/" or code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code <= 0xF8FF or 0xFFF0 <= code <= 0xFFFF
    )


def program_name() -> str:
    """The script's name without .py, the module's for `python -m`, else `python`."""
    path = sys.argv[0] if getattr(sys, "argv", None) else ""
    folder, base = os.path.split(path)
    if base == "__main__.py":
        base = os.path.basename(folder)
    if base.endswith(".py"):
        base = base[:-3]
    return base if base not in ("", "-c", "-m") else "python"


def default_run_folder() -> str:
    """One folder a user and host. XDG_RUNTIME_DIR and TMPDIR differ between a user's sessions and services, and two
    folders would give one number twice, so neither is used."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return f"/tmp/artimon-{user}"  # noqa: S108 - made with mode 0700 and refused if somebody else owns it
