"""The one place where the platform reads the environment: flags of the command line > environment > defaults."""

from __future__ import annotations

import os
import re
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
DEFAULT_KAFKA_QUOTA = 20 * 1024**3
LEAST_KAFKA_QUOTA = 24 * 1024**2
"""Below this the eight partitions with their smallest segments would not fit into half of it."""
_BYTES = re.compile(r"(\d+)\s*(|[KMGT]i?)B?", re.IGNORECASE)


class SettingsError(ValueError):
    """A variable of the environment or a flag cannot be read. The text says which and what it should be."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where everything is: `zookeeper` host:port, `kafka` host:port or a comma list of them, `hdfs` a URI."""

    zookeeper: str
    kafka: str
    hdfs: str
    api: str
    matrix: str
    smtp: str
    kafka_quota_bytes: int
    """Bytes that the topic of samples may have in Kafka; 0: any number."""
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
        kafka_quota_bytes=parse_quota(env.get("ARTIMON_KAFKA_QUOTA") or str(DEFAULT_KAFKA_QUOTA)),
        data=Path(env.get("ARTIMON_DATA") or share / "artimon" / "default").expanduser(),
        dropin=Path(env.get("ARTIMON_DROPIN") or DEFAULT_DROPIN).expanduser(),
        cache=cache.expanduser() / "artimon",
        java_home=Path(java) if java else None,
        venv=Path(venv).expanduser().absolute() if venv else None,
        no_color=bool(env.get("NO_COLOR")),
        ci=bool(env.get("CI")),
        data_given=bool(env.get("ARTIMON_DATA")),
    )


def parse_quota(text: str) -> int:
    """Bytes of "20 GiB", "21474836480" or "0" (no quota); K, M, G and T count in 1024s. Raises SettingsError."""
    found = _BYTES.fullmatch(text.strip())
    size = int(found[1]) * 1024 ** " KMGT".index((found[2] or " ")[0].upper()) if found else -1
    if size and not LEAST_KAFKA_QUOTA <= size < 2**63:
        least = LEAST_KAFKA_QUOTA // 1024**2
        raise SettingsError(
            f"quota of Kafka (ARTIMON_KAFKA_QUOTA, --kafka-quota) {text!r}: write bytes, at least {least} MiB, such as"
            " 20GiB, or 0 for none"
        )
    return size


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that the stack starts: this one's with `extra` on top."""
    return {**os.environ, **extra}
