"""The one place where the platform reads the environment: flags of the command line > environment > defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_ZOOKEEPER = "127.0.0.1:2181"
DEFAULT_KAFKA = "127.0.0.1:9092"
DEFAULT_HDFS = "hdfs://127.0.0.1:8020"
DEFAULT_API = "http://127.0.0.1:8780"
DEFAULT_MATRIX = "127.0.0.1:8781"
DEFAULT_SMTP = "127.0.0.1:8725"
DEFAULT_DROPIN = Path("/var/run/artimon")


@dataclass(frozen=True, slots=True)
class Settings:
    """Where everything is: `zookeeper` host:port, `kafka` host:port or a comma list of them, `hdfs` a URI."""

    zookeeper: str
    kafka: str
    hdfs: str
    api: str
    matrix: str
    smtp: str
    data: Path
    dropin: Path
    cache: Path
    java_home: Path | None
    venv: Path | None
    no_color: bool
    ci: bool
    data_given: bool
    """Whether `data` was chosen by ARTIMON_DATA."""


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Settings of this process; `environ` replaces the real environment in tests."""
    env = os.environ if environ is None else environ
    home = Path(env.get("HOME") or Path.home())
    share = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share")
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    java, venv = env.get("JAVA_HOME"), env.get("ARTIMON_VENV")
    return Settings(
        zookeeper=env.get("ARTIMON_ZOOKEEPER") or DEFAULT_ZOOKEEPER,
        kafka=env.get("ARTIMON_KAFKA") or DEFAULT_KAFKA,
        hdfs=env.get("ARTIMON_HDFS") or DEFAULT_HDFS,
        api=env.get("ARTIMON_API") or DEFAULT_API,
        matrix=env.get("ARTIMON_MATRIX") or DEFAULT_MATRIX,
        smtp=env.get("ARTIMON_SMTP") or DEFAULT_SMTP,
        data=Path(env.get("ARTIMON_DATA") or share / "artimon" / "default").expanduser(),
        dropin=Path(env.get("ARTIMON_DROPIN") or DEFAULT_DROPIN).expanduser(),
        cache=cache.expanduser() / "artimon",
        java_home=Path(java) if java else None,
        venv=Path(venv).expanduser().absolute() if venv else None,
        no_color=bool(env.get("NO_COLOR")),
        ci=bool(env.get("CI")),
        data_given=bool(env.get("ARTIMON_DATA")),
    )


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that the stack starts: this one's with `extra` on top."""
    return {**os.environ, **extra}
