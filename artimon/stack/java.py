"""Search for a suitable Java: 17 or later, full (Spark's vector code needs the module jdk.incubator.vector)."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from artimon.runtime.settings import Settings
from artimon.stack.stack_errors import JavaMissingError

MIN_VERSION = 17
VECTOR_MODULE = "jdk.incubator.vector"
SYSTEM_TRUST_STORE = Path("/etc/ssl/certs/java/cacerts")


@dataclass(frozen=True, slots=True)
class Java:
    """A suitable Java: path of the `java` program and its feature version (17, 21, ...)."""

    program: Path
    version: int

    @property
    def home(self) -> Path:
        """The folder for JAVA_HOME."""
        return self.program.resolve().parent.parent


def parse_version(text: str) -> int | None:
    """Parse the feature version in the output of `java -version`: '17.0.15' -> 17, '1.8.0' -> 8; None if absent."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    first = int(found[1])
    return int(found[2] or 0) if first == 1 else first


def _output(program: Path, *arguments: str) -> str:
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    return done.stdout + done.stderr


def read_release(program: Path) -> dict[str, str]:
    """Return the fields of the file `release` of this Java, {} if it has none. Reading it saves two starts of a JVM."""
    try:
        text = (program.resolve().parent.parent / "release").read_text()
    except (OSError, UnicodeDecodeError):
        return {}
    fields = (line.partition("=") for line in text.splitlines())
    return {name: value.strip('"') for name, _, value in fields}


def find_java(settings: Settings) -> Java:
    """Return JAVA_HOME's Java, else the one on PATH. Raises JavaMissingError: what was found and what to install."""
    in_home = settings.java_home / "bin" / "java" if settings.java_home else None
    program = in_home if in_home and in_home.is_file() else shutil.which("java")
    if program is None:
        raise JavaMissingError("none on PATH")
    path = Path(program)
    release = read_release(path)
    said = f'version "{release["JAVA_VERSION"]}"' if "JAVA_VERSION" in release else _output(path, "-version")
    version = parse_version(said)
    if version is None or version < MIN_VERSION:
        raise JavaMissingError(f"{path}, version {version or 'unknown'}")
    if VECTOR_MODULE not in (release.get("MODULES") or _output(path, "--list-modules")):
        raise JavaMissingError(f"{path}, version {version}, without {VECTOR_MODULE} (a cut-down Java)")
    return Java(path, version)


def trust_store_flags(java: Java) -> list[str]:
    """Return flags that make this Java use the system's trust store; none if it already does."""
    own = java.home / "lib" / "security" / "cacerts"
    system = SYSTEM_TRUST_STORE
    if not system.is_file() or (own.exists() and own.resolve() == system.resolve()):
        return []
    return [f"-Djavax.net.ssl.trustStore={system}"]


def jvm_flags(heap_mb: int, temporary: Path) -> list[str]:
    """Return the flags of every JVM of the stack: a heap limit, exit on out of memory, small stacks and code cache, the
    first compiler only. The second one doubles the work of a start, and gains nothing in servers that move bytes
    (docs/tuning.md, "Start of the stack")."""
    return [
        f"-Xmx{heap_mb}m",
        f"-Xms{heap_mb // 2}m",  # else a 64th of the machine, whose young generation is touched before it is collected
        "-Xss512k",
        "-XX:+UseSerialGC",
        "-XX:MetaspaceSize=64m",  # no full collection while classes are loaded
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",
        "-XX:ReservedCodeCacheSize=64m",
        "-Djava.net.preferIPv4Stack=true",
        "-Dfile.encoding=UTF-8",
        f"-Djava.io.tmpdir={temporary}",
        f"-XX:ErrorFile={temporary}/hs_err.log",
        "-XX:TieredStopAtLevel=1",
    ]
