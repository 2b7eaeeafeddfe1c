"""Jars of the real servers: exactly those of `jars.lock`, in the user's cache folder, retrieved once.

Ivy, from PySpark's jars, retrieves them from its default repository: only the jars, as the lock file has all
dependencies and digests. Several Ivy processes run in parallel, each with a share of the list, because sequential small
requests take most of the time. Files are verified, then renamed into place, so a set's folder holds only complete,
verified files even if a process is killed.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from artimon.runtime.settings import Settings
from artimon.stack.java import Java, trust_store_flags
from artimon.stack.stack_errors import JarMismatchError, JarsUnresolvedError, StackError

LOCK_FILE = Path(__file__).with_name("jars.lock")
IVY = "ivy-2.5.3.jar"
WORKERS = 4
RESOLVE_S = 1200
Say = Callable[[str], None]

_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="default"/>
  <caches defaultCacheDir={cache}/>
  <resolvers><ibiblio name="default" m2compatible="true" usepoms="false" checksums="none"/></resolvers>
</ivysettings>
"""


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned jar; `digest` is the sha256 of the file in hexadecimal."""

    jar_set: str
    group: str
    name: str
    version: str
    digest: str

    @property
    def file(self) -> str:
        """File name of the jar."""
        return f"{self.name}-{self.version}.jar"


def read_lock(path: Path = LOCK_FILE) -> list[Jar]:
    """Read a lock file with lines `set group:name:version sha256`. Raises StackError on any other line."""
    jars = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split()
        coordinates = fields[1].split(":") if len(fields) == 3 else []
        if len(coordinates) != 3 or len(fields[2]) != 64:
            raise StackError(f"{path} line {number}: want `set group:name:version sha256`, found {line!r}")
        group, name, version = coordinates
        jars.append(Jar(fields[0], group, name, version, fields[2]))
    return jars


def spark_jars() -> Path:
    """Return the jar folder of the installed PySpark, without importing it. Raises StackError."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise StackError("PySpark is not installed: run ./scripts/setup")
    return Path(spec.origin).parent / "jars"


def digest_of(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ensure_jars(
    settings: Settings,
    java: Java,
    sets: Iterable[str],
    say: Say | None = None,
    *,
    verify: bool = False,
    lock: Path = LOCK_FILE,
) -> Path:
    """Make sure that the jars of `sets` in `lock` are in the cache; returns the folder that has one folder per set.

    Present files are trusted unless `verify`, as they were verified before they got their name.
    Raises JarMismatchError, JarsUnresolvedError. Safe for concurrent processes."""
    folder = settings.cache / "jars"
    wanted = [jar for jar in read_lock(lock) if jar.jar_set in set(sets)]
    if verify:
        for jar in wanted:
            _check(folder / jar.jar_set / jar.file, jar)
    if not _missing(folder, wanted):
        return folder
    with alone(folder / "lock"):
        missing = _missing(folder, wanted)
        if missing:
            (say or _say)(f"retrieving {len(missing)} jars of the servers into {folder} (once; about a minute)")
            _retrieve(folder, missing, java)
    return folder


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """Wait for an exclusive lock on `file`, creating its folder, and hold it; the end of the process releases it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _missing(folder: Path, wanted: Sequence[Jar]) -> list[Jar]:
    return [jar for jar in wanted if not (folder / jar.jar_set / jar.file).is_file()]


def _check(path: Path, jar: Jar) -> None:
    if path.is_file():
        actual = digest_of(path)
        if actual != jar.digest:
            raise JarMismatchError(path, jar.digest, actual)


def _retrieve(folder: Path, missing: Sequence[Jar], java: Java) -> None:
    """Run WORKERS Ivy processes on a share each; after a failure keep Ivy's cache, so that a retry resumes."""
    work = folder / ".resolving"
    work.mkdir(exist_ok=True)
    running = {
        number: (share, _start_ivy(work / str(number), share, java))
        for number, share in enumerate(split_shares(missing, WORKERS))
        if share
    }
    codes = _wait_all([process for _, process in running.values()])
    unresolved, log = [], work / "0" / "ivy.log"
    for number, (share, _) in running.items():
        for jar in share:
            fresh = work / str(number) / "out" / jar.group / jar.file
            if fresh.is_file():
                _check(fresh, jar)
                _install_files(fresh, folder / jar.jar_set / jar.file)
            else:
                unresolved.append(f"{jar.group}:{jar.name}:{jar.version}")
                log = work / str(number) / "ivy.log"
    if unresolved:
        raise JarsUnresolvedError(unresolved, log, f"Ivy ended with {codes}")
    shutil.rmtree(work, ignore_errors=True)


def split_shares(jars: Sequence[Jar], count: int) -> list[list[Jar]]:
    """Split jars into `count` or a few more shares of similar size, none with two versions of a module (Ivy evicts)."""
    shares: list[list[Jar]] = [[] for _ in range(count)]
    versions: list[dict[tuple[str, str], str]] = [{} for _ in range(count)]
    for jar in sorted(jars, key=lambda one: (one.group, one.name, one.version)):
        module = jar.group, jar.name
        fit = [i for i in range(len(shares)) if versions[i].get(module, jar.version) == jar.version]
        if not fit:
            shares.append([])
            versions.append({})
            fit = [len(shares) - 1]
        chosen = min(fit, key=lambda i: len(shares[i]))
        shares[chosen].append(jar)
        versions[chosen][module] = jar.version
    return shares


def _wait_all(running: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """Wait and return the exit codes; kills the processes that still run after RESOLVE_S seconds or an error."""
    try:
        return [process.wait(timeout=RESOLVE_S) for process in running]
    except subprocess.TimeoutExpired:
        return [process.poll() or 0 for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()


def _install_files(fresh: Path, target: Path) -> None:
    """Copy a file beside the target, then rename it. A copy, as two sets may want it; readers see no partial file."""
    target.parent.mkdir(exist_ok=True)
    half = target.with_suffix(".new")
    shutil.copyfile(fresh, half)
    half.replace(target)


def _start_ivy(work: Path, share: Sequence[Jar], java: Java) -> subprocess.Popen[bytes]:
    shutil.rmtree(work / "out", ignore_errors=True)
    work.mkdir(exist_ok=True)
    (work / "settings.xml").write_text(_SETTINGS.format(cache=quoteattr(str(work / "cache"))))
    (work / "ivy.xml").write_text(ivy_module(share))
    argv = [
        str(java.program),
        *("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),  # it waits for the network and lives for seconds
        *trust_store_flags(java),
        "-jar",
        str(spark_jars() / IVY),
        *("-settings", str(work / "settings.xml"), "-ivy", str(work / "ivy.xml")),
        *("-confs", "default", "-types", "jar", "bundle"),
        *("-retrieve", f"{work / 'out'}/[organisation]/[artifact]-[revision].[ext]"),
    ]
    with (work / "ivy.log").open("wb") as log:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def ivy_module(share: Sequence[Jar]) -> str:
    """Return Ivy's module file for a share: each jar without its dependencies."""
    rows = [
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.name)} rev={quoteattr(jar.version)} "
        'conf="default->default" transitive="false"/>'
        for jar in share
    ]
    head = '<ivy-module version="2.0"><info organisation="artimon" module="jars"/>'
    conf = '<configurations><conf name="default"/></configurations>'
    return f"{head}{conf}<dependencies>{''.join(rows)}</dependencies></ivy-module>\n"
