"""Settings from the environment, read only here. Precedence: flags of the command line > environment > defaults."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from artimon.runtime.text import parse_size
from bookkeeper.runtime.process_settings import SettingsError as BookkeeperSettingsError
from bookkeeper.runtime.process_settings import zookeeper_digest

if TYPE_CHECKING:  # set-up reads settings before anything is installed
    from bookkeeper.rpc.security import Security

DEFAULT_ZOOKEEPER = "127.0.0.1:2181"
DEFAULT_KAFKA = "127.0.0.1:9092"
DEFAULT_HDFS = "hdfs://127.0.0.1:8020"
DEFAULT_API = "http://127.0.0.1:8780"
DEFAULT_MATRIX = "127.0.0.1:8781"
DEFAULT_SMTP = "127.0.0.1:8725"
DEFAULT_DROPIN_FOLDER = Path("/var/run/artimon")
DEFAULT_KAFKA_QUOTA = 20 * 1024**3
MIN_KAFKA_QUOTA = 24 * 1024**2
"""Smallest quota of Kafka, bytes: below it the eight partitions with minimal segments exceed half of the quota."""
KAFKA_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
KAFKA_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER")
SECRET_BYTES = 8192
"""Limit of a secret in a file, characters: OAuth tokens have up to some KiB."""


class SettingsError(ValueError):
    """An invalid variable of the environment or flag. The text names it and the valid values."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Addresses and folders. `zookeeper`: host:port; `kafka`: host:port, or several by comma; `hdfs`: a URI."""

    zookeeper: str
    kafka: str
    hdfs: str
    api: str
    matrix: str
    smtp: str
    kafka_quota_bytes: int
    """Quota of the topic of samples in Kafka, bytes; 0: unlimited."""
    data: Path
    dropin: Path
    cache: Path
    java_home: Path | None
    venv: Path | None
    no_color: bool
    ci: bool
    data_given: bool
    """True if `data` comes from ARTIMON_DATA."""
    host: str = ""
    """Host key below which the processes of this host register; "": chosen by the process."""
    config_keys: Path | None = None
    """File of the keys that sign configuration and commands."""
    levels: str = ""
    """Levels of the memory store, "60x60,300x48" (seconds x buckets); empty: the defaults."""
    promql_exact_increase: bool = False
    promql_similar_names: bool = False
    display: bool = False
    """True if programs with windows can be started."""
    recording_classes: bool = False
    """True if the JVMs of this process are to record the archives of their classes when they end."""

    @property
    def class_archives(self) -> Path:
        """Folder of the archives of JVMs' classes."""
        return self.cache / "classes"


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings of this process; `environ` replaces the real environment in tests."""
    env = os.environ if environ is None else environ
    home = Path(env.get("HOME") or Path.home())
    share = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share")
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    java, venv, keys = env.get("JAVA_HOME"), env.get("ARTIMON_VENV"), env.get("ARTIMON_CONFIG_KEYS")
    return Settings(
        zookeeper=env.get("ARTIMON_ZOOKEEPER") or DEFAULT_ZOOKEEPER,
        kafka=env.get("ARTIMON_KAFKA") or DEFAULT_KAFKA,
        hdfs=env.get("ARTIMON_HDFS") or DEFAULT_HDFS,
        api=env.get("ARTIMON_API") or DEFAULT_API,
        matrix=env.get("ARTIMON_MATRIX") or DEFAULT_MATRIX,
        smtp=env.get("ARTIMON_SMTP") or DEFAULT_SMTP,
        kafka_quota_bytes=parse_quota(env.get("ARTIMON_KAFKA_QUOTA") or str(DEFAULT_KAFKA_QUOTA)),
        data=Path(env.get("ARTIMON_DATA") or share / "artimon" / "default").expanduser(),
        host=env.get("ARTIMON_HOST") or "",
        dropin=Path(env.get("ARTIMON_DROPIN") or DEFAULT_DROPIN_FOLDER).expanduser(),
        cache=cache.expanduser() / "artimon",
        java_home=Path(java) if java else None,
        venv=Path(venv).expanduser().absolute() if venv else None,
        no_color=bool(env.get("NO_COLOR")),
        ci=bool(env.get("CI")),
        data_given=bool(env.get("ARTIMON_DATA")),
        config_keys=Path(keys).expanduser() if keys else None,
        levels=env.get("ARTIMON_LEVELS") or "",
        promql_exact_increase=_is_on(env, "ARTIMON_PROMQL_EXACT_INCREASE"),
        promql_similar_names=_is_on(env, "ARTIMON_PROMQL_SIMILAR_NAMES"),
        display=sys.platform == "darwin" or bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY")),
        recording_classes=_is_on(env, "ARTIMON_RECORD_CLASSES"),
    )


def parse_quota(text: str) -> int:
    """Parse "20 GiB", "21474836480" or "0" (no quota) to bytes; K, M, G and T are binary. Raises SettingsError."""
    try:
        size = parse_size(text)
    except ValueError:
        size = -1
    if size and not MIN_KAFKA_QUOTA <= size < 2**63:
        least = MIN_KAFKA_QUOTA // 1024**2
        raise SettingsError(
            f"quota of Kafka (ARTIMON_KAFKA_QUOTA, --kafka-quota) {text!r}: write bytes, at least {least} MiB, such as"
            " 20GiB, or 0 for none"
        )
    return size


@lru_cache(maxsize=1)
def security() -> Security | None:
    """Return the certificates and tokens that this process presents and requires; None for none. docs/security.md.
    Cached for the process. Raises SettingsError."""
    from bookkeeper.rpc.security import SecurityConfigError, security_from_settings

    try:
        return security_from_settings(os.environ)
    except SecurityConfigError as problem:
        raise SettingsError(str(problem)) from None


def api_token() -> str:
    """Return the token that clients of the API present: the line of the file ARTIMON_TOKEN_FILE, else ARTIMON_TOKEN, ""
    without. Raises SettingsError."""
    file = os.environ.get("ARTIMON_TOKEN_FILE", "")
    return read_secret("ARTIMON_TOKEN_FILE", file) if file else os.environ.get("ARTIMON_TOKEN", "").strip()


def s3_endpoint() -> str:
    """Return the address of an S3 server that is not Amazon's, "" without one."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return next((found for name in names if (found := os.environ.get(name, ""))), "")


def secret_variable(name: str) -> str | None:
    """Return a variable of the environment that a configuration file names, None if there is none."""
    return os.environ.get(name)


@lru_cache(maxsize=1)
def zookeeper_auth() -> str:
    """Return user:password of ZooKeeper's digest scheme, "" without (ARTIMON_ZOOKEEPER_AUTH names the file). Raises
    SettingsError."""
    try:
        file = os.environ.get("ARTIMON_ZOOKEEPER_AUTH", "")
        return zookeeper_digest(file) if file else ""
    except BookkeeperSettingsError as problem:
        raise SettingsError(str(problem)) from None


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """Credentials and TLS trust of every Kafka client of this process (docs/deploy.md, "Kafka")."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    service: str = "kafka"
    """Kerberos service name of the brokers."""
    keytab: str = ""
    token_file: str = ""
    """For OAUTHBEARER: file with the current token."""
    ca: str = ""
    certificate: str = ""
    key: str = ""

    @property
    def is_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def is_tls(self) -> bool:
        return self.protocol.endswith("SSL")


def read_kafka_security(env: Mapping[str, str]) -> KafkaSecurity:
    """Read and check the variables ARTIMON_KAFKA_* together. Raises SettingsError."""

    def given(name: str, default: str = "") -> str:
        return env.get(f"ARTIMON_KAFKA_{name}") or default

    protocol, mechanism = given("SECURITY_PROTOCOL", "PLAINTEXT").upper(), given("SASL_MECHANISM").upper()
    _choose("ARTIMON_KAFKA_SECURITY_PROTOCOL", protocol, KAFKA_PROTOCOLS)
    if protocol.startswith("SASL_"):
        _choose("ARTIMON_KAFKA_SASL_MECHANISM", mechanism, KAFKA_MECHANISMS)
    elif mechanism:
        raise SettingsError(f"ARTIMON_KAFKA_SASL_MECHANISM is set, but ARTIMON_KAFKA_SECURITY_PROTOCOL is {protocol}")
    username, password = given("SASL_USERNAME"), ""
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM-"):
        if not username:
            raise SettingsError(f"ARTIMON_KAFKA_SASL_USERNAME: {mechanism} needs a user name")
        password = read_secret("ARTIMON_KAFKA_SASL_PASSWORD_FILE", given("SASL_PASSWORD_FILE"))
    if mechanism == "OAUTHBEARER":
        read_secret("ARTIMON_KAFKA_SASL_TOKEN_FILE", given("SASL_TOKEN_FILE"))
    if bool(given("TLS_CERTIFICATE")) != bool(given("TLS_KEY")):
        raise SettingsError("ARTIMON_KAFKA_TLS_CERTIFICATE and ARTIMON_KAFKA_TLS_KEY: set both or none")
    for name in ("TLS_CA", "TLS_CERTIFICATE", "TLS_KEY"):
        if given(name) and not os.access(given(name), os.R_OK):
            raise SettingsError(f"ARTIMON_KAFKA_{name}: {given(name)} cannot be read")
    files = map(given, ("SASL_KEYTAB", "SASL_TOKEN_FILE", "TLS_CA", "TLS_CERTIFICATE", "TLS_KEY"))
    return KafkaSecurity(protocol, mechanism, username, password, given("SASL_SERVICE", "kafka"), *files)


def read_secret(variable: str, file: str) -> str:
    """Return the only line of a file that others may not read. Raises SettingsError."""
    if not file:
        raise SettingsError(f"{variable}: name a file that holds the secret")
    try:
        mode = os.stat(file).st_mode
        with open(file, encoding="utf-8") as opened:
            text = opened.read(SECRET_BYTES + 1).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{variable}: {error}") from None
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise SettingsError(f"{variable}: others may read or write {file}: chmod 640 {file}")
    if not text or len(text) > SECRET_BYTES or "\n" in text:
        raise SettingsError(f"{variable}: {file} must hold one line of at most {SECRET_BYTES} characters")
    return text


def _choose(variable: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise SettingsError(f"{variable} is {value!r}: write one of {', '.join(allowed)}")


@lru_cache(maxsize=1)
def kafka_security() -> KafkaSecurity:
    """Return the Kafka credentials of this process, read once. Raises SettingsError."""
    return read_kafka_security(os.environ)


def secure_polls() -> bool:
    """True if endpoints are polled with certificates or tokens (ARTIMON_SECURE_POLLS)."""
    return _is_on(os.environ, "ARTIMON_SECURE_POLLS")


def _is_on(env: Mapping[str, str], variable: str) -> bool:
    return env.get(variable, "").lower() in ("1", "true", "yes", "on")


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that the stack starts: this one's, updated with `extra`."""
    return {**os.environ, **extra}
