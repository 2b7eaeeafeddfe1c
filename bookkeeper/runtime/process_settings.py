"""Settings from the environment and from `configure`. The only place of this package that reads the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from bookkeeper.runtime.series_limits import SERIES, SERIES_PER_NAME

ZOOKEEPER = "127.0.0.1:2181"
DROPIN = "/var/run/artimon"
FINAL_FOLDER = "final"
"""Folder of final snapshots inside the folder of drop-in files; the agent creates it."""
NAME_BYTES = 255
MAX_SERIES = 10_000_000


class SettingsError(ValueError):
    """Unusable setting; the text names it and says what to do."""


@dataclass(frozen=True)
class ProcessSettings:
    """Settings of a process: from `configure`, else from the environment, else the defaults.

    `instance` None: the lowest free number. `advertise` None: the source address of the route to ZooKeeper. `bind`
    None: the advertised address. `run`: folder of the instance locks."""

    context: str
    zookeeper: str = ZOOKEEPER
    instance: str | None = None
    host: str = ""
    """Host key, see bookkeeper/process/host_key.py; "": chosen there."""
    advertise: str | None = None
    bind: str | None = None
    run: str = ""
    disabled: bool = False
    secure_polls: bool = False
    """True if pollers must authenticate, see bookkeeper/rpc/security.py."""
    zookeeper_auth: str = ""
    """File with user:password for ZooKeeper; "" for none."""
    dropin: str = ""
    """Folder of drop-in files; final snapshots go into its subfolder `final`."""
    openmetrics: str = ""
    """Address of the endpoint for Prometheus, `[host:]port[-port]`; "" for none."""


def read_settings(
    given: Mapping[str, str | None], environment: Mapping[str, str] | None = None, *, lenient: bool = False
) -> ProcessSettings:
    """Read the settings: values `given` in code first, then the environment.

    An invalid context or instance raises SettingsError. If `lenient`, the program's name replaces an invalid context
    and a number replaces an invalid instance. Invalid characters of the program's name are replaced."""
    env = os.environ if environment is None else environment

    def one(name: str) -> str | None:
        return given.get(name) or env.get("ARTIMON_" + name.upper()) or None

    context = one("context")
    instance = one("instance")
    if lenient:
        context = context if context is None or _allowed("context", context) else None
        instance = instance if instance is None or _allowed("instance", instance) else None
    return ProcessSettings(
        context=fit_name(program_name()) if context is None else validate_name("context", context),
        zookeeper=one("zookeeper") or ZOOKEEPER,
        instance=None if instance is None else validate_name("instance", instance),
        host=env.get("ARTIMON_HOST") or "",
        advertise=one("advertise"),
        bind=one("bind"),
        run=one("run") or default_run_folder(),
        disabled=_parse_flag(env.get("ARTIMON_DISABLED", "")) or _parse_flag(env.get("ARTIMON_OFF", "")),
        secure_polls=_parse_flag(env.get("ARTIMON_SECURE_POLLS", "")),
        zookeeper_auth=env.get("ARTIMON_ZOOKEEPER_AUTH") or "",
        dropin=dropin_folder(environment=env),
        openmetrics=one("openmetrics") or "",
    )


@dataclass(frozen=True)
class CountingSettings:
    """Settings of counting itself. `off`: nothing is counted, served or registered. `strict`: refused calls raise.
    `series`, `series_per_name`: limits. `problems`: messages about unusable settings."""

    off: bool = False
    strict: bool = False
    series: int = SERIES
    series_per_name: int = SERIES_PER_NAME
    problems: tuple[str, ...] = ()


def read_counting_settings(environment: Mapping[str, str] | None = None) -> CountingSettings:
    """Read ARTIMON_OFF, ARTIMON_STRICT, ARTIMON_SERIES and ARTIMON_SERIES_PER_NAME."""
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

    return CountingSettings(
        off=_parse_flag(env.get("ARTIMON_OFF", "")),
        strict=_parse_flag(env.get("ARTIMON_STRICT", "")),
        series=limit("ARTIMON_SERIES", SERIES),
        series_per_name=limit("ARTIMON_SERIES_PER_NAME", SERIES_PER_NAME),
        problems=tuple(problems),
    )


def environment() -> Mapping[str, str]:
    """Environment of the process, for modules with further variables (bookkeeper/rpc/security.py)."""
    return os.environ


def validate_name(what: str, name: str) -> str:
    """Return `name` if it is valid in a ZooKeeper path, else raise SettingsError."""
    problem = ""
    if not isinstance(name, str):
        raise SettingsError(f"{what} {name!r:.80} is of type {type(name).__name__}: give a str")
    if not name or name in (".", ".."):
        problem = "give it a name"
    elif any(_is_forbidden(character) for character in name):
        problem = "leave out / and control characters"
    elif len(name.encode("utf-8")) > NAME_BYTES:
        problem = f"use at most {NAME_BYTES} bytes of UTF-8"
    if problem:
        raise SettingsError(f"{what} {name!r:.80}: {problem}")
    return name


def dropin_folder(given: str | os.PathLike[str] | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Folder of drop-in files: `given`, else ARTIMON_DROPIN, else the default."""
    env = os.environ if environment is None else environment
    return os.fspath(given) if given is not None else env.get("ARTIMON_DROPIN") or DROPIN


def _parse_flag(text: str) -> bool:
    return text.lower() in ("1", "true", "yes", "on")


def zookeeper_digest(file: str) -> str:
    """Read user:password from a file. Raises SettingsError."""
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
        validate_name(what, name)
    except SettingsError:
        return False
    return True


def fit_name(name: str) -> str:
    """Replace the characters of `name` that are invalid in a ZooKeeper path by _."""
    fit = "".join("_" if _is_forbidden(character) else character for character in name)
    fit = fit.encode("utf-8")[:NAME_BYTES].decode("utf-8", "ignore")
    return fit if fit.strip(".") else "python"


def _is_forbidden(character: str) -> bool:
    code = ord(character)
    return (
        character == "/" or code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code <= 0xF8FF or 0xFFF0 <= code <= 0xFFFF
    )


def program_name() -> str:
    """Name of the script without .py; of the module for `python -m`; else `python`."""
    path = sys.argv[0] if getattr(sys, "argv", None) else ""
    folder, base = os.path.split(path)
    if base == "__main__.py":
        base = os.path.basename(folder)
    if base.endswith(".py"):
        base = base[:-3]
    return base if base not in ("", "-c", "-m") else "python"


def default_run_folder() -> str:
    """One folder per user and host. XDG_RUNTIME_DIR and TMPDIR are not used: they differ between the sessions and
    services of a user, and two folders would assign one number twice."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return f"/tmp/artimon-{user}"  # noqa: S108 - created with mode 0700, refused if another user owns it
