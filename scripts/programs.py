"""Debian programs that the screenshot, some tests and some benchmarks use; the work of `./scripts/setup --programs`.
What is not here is fetched: installed by apt where we are root, else unpacked into the cache folder, where it changes
nothing for anybody else."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from artimon.runtime.settings import Settings, child_environment, load
from artimon.stack.jars import alone
from artimon.stack.stack_errors import StackError

STEP_S = 600.0
PROBE_S = 20.0
Say = Callable[[str], None]


class ProgramsMissing(StackError):
    """Programs that could not be had; `reasons` by name."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(dict(reasons))
        self.reasons = dict(reasons)

    def __str__(self) -> str:
        return "; ".join(f"{name} is not here: {reason}" for name, reason in self.reasons.items())


@dataclass(frozen=True, slots=True)
class Program:
    """Path of a program, and additions to the environment of a process that runs it."""

    path: Path
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Need:
    """`commands` to look for on the path, `files` of the unpacked packages, `packages` of Debian, arguments that prove
    that it runs, and the exit code that it then has."""

    commands: tuple[str, ...]
    files: tuple[str, ...]
    packages: tuple[str, ...]
    probe: tuple[str, ...]
    probe_code: int = 0


NEEDS: Mapping[str, Need] = {
    "systemd-analyze": Need(("systemd-analyze",), ("usr/bin/systemd-analyze",), ("systemd",), ("--version",)),
    "chromium": Need(  # without windows, for half of the work: a page in 0.9 s of a core, in the whole browser 2.1
        ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"),
        ("usr/lib/chromium/chromium-headless-shell", "usr/lib/chromium/chromium"),
        ("chromium-headless-shell", "fonts-dejavu-core"),
        ("--version",),
    ),
    "thrift": Need(("thrift",), ("usr/bin/thrift",), ("thrift-compiler",), ("--version",)),
    "perl-thrift": Need(  # the package of Thrift does not name all that it needs
        ("perl",),
        ("usr/bin/perl",),
        ("perl", "libthrift-perl", "libbit-vector-perl", "libclass-accessor-perl"),
        ("-MThrift::BinaryProtocol", "-MClass::Accessor", "-e", "1"),
    ),
}
PEERS: Mapping[str, Need] = {
    "prometheus": Need(("prometheus",), ("usr/bin/prometheus",), ("prometheus",), ("--version",)),
    "promtool": Need(("promtool",), ("usr/bin/promtool",), ("prometheus",), ("--version",)),
    "alertmanager": Need(
        ("prometheus-alertmanager", "alertmanager"),
        ("usr/bin/prometheus-alertmanager",),
        ("prometheus-alertmanager",),
        ("--version",),
    ),
    "amtool": Need(("amtool",), ("usr/bin/amtool",), ("prometheus-alertmanager",), ("--version",)),
    "node-exporter": Need(
        ("prometheus-node-exporter", "node_exporter"),
        ("usr/bin/prometheus-node-exporter",),
        ("prometheus-node-exporter",),
        ("--version",),
    ),
    "uwsgi": Need(("uwsgi-core",), ("usr/bin/uwsgi-core",), ("uwsgi-core", "uwsgi-plugin-python3"), ("--version",)),
    "victoria-metrics": Need(
        ("victoria-metrics",), ("usr/bin/victoria-metrics",), ("victoria-metrics",), ("--version",)
    ),
    "firefox": Need(("firefox-esr", "firefox"), ("usr/lib/firefox-esr/firefox-esr",), ("firefox-esr",), ("--version",)),
    "collectd": Need(("collectd",), ("usr/sbin/collectd",), ("collectd-core",), ("-h",)),
    "kerberos": Need(
        ("krb5kdc",), ("usr/sbin/krb5kdc",), ("krb5-kdc", "krb5-admin-server", "krb5-user"), ("-h",), probe_code=1
    ),
}
"""What benchmarks measure beside ours, and tests use as they are. Never installed: the packages would start servers."""
COMPARED = ("prometheus", "alertmanager", "node-exporter", "uwsgi", "collectd", "kerberos")
"""Those that tests need; the others only benchmarks fetch."""


def find(name: str, cache: Path) -> Program | None:
    """The program on the path or unpacked in `cache`, if it runs."""
    need, root = _need(name), _root(cache)
    unpacked = _unpacked_environment(root) if root.is_dir() else {}
    places = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
    found = [Program(Path(path)) for command in need.commands if (path := shutil.which(command, path=places))]
    found += [
        Program(program.path, unpacked) for program in found if unpacked
    ]  # perl of the system, module of the cache
    found += [Program(root / file, unpacked) for file in need.files if (root / file).is_file()]
    return next((program for program in found if _runs(program, need)), None)


def ensure(names: Iterable[str], cache: Path, say: Say) -> dict[str, Program]:
    """Find the programs, fetch what is not there. Raises ProgramsMissing with what could not be had."""
    wanted = list(names)
    if not all(find(name, cache) for name in wanted):
        with alone(cache / "debian.lock"):  # a run beside this one fetches the same
            return _fetched(wanted, cache, say)
    return {name: program for name in wanted if (program := find(name, cache))}


def _fetched(wanted: Sequence[str], cache: Path, say: Say) -> dict[str, Program]:
    missing = [name for name in wanted if not find(name, cache)]
    reason = "it was fetched and does not run"
    for install in (True, False):
        names = [name for name in missing if (name not in PEERS) == install]
        reason = _fetch_for(names, cache, install, say) or reason
    found = {name: find(name, cache) for name in wanted}
    lost = {name: f"{reason}; `apt-get install {' '.join(_need(name).packages)}`" for name in wanted if not found[name]}
    if lost:
        raise ProgramsMissing(lost)
    return {name: program for name, program in found.items() if program}


def _fetch_for(names: Sequence[str], cache: Path, install: bool, say: Say) -> str:
    """Fetch what the programs need: if some of it cannot be had, for one after another. Return an error, or ""."""
    packages = sorted({package for name in names for package in _need(name).packages})
    if not packages:
        return ""
    say(f"fetching {', '.join(packages)} and what they need")
    try:
        _fetch(packages, cache, install)
    except (OSError, subprocess.SubprocessError) as problem:
        if len(names) == 1:
            return _first_error(problem)
        return next(filter(None, [_fetch_for([name], cache, install, say) for name in names]), "")
    return ""


def _need(name: str) -> Need:
    return NEEDS[name] if name in NEEDS else PEERS[name]


def _root(cache: Path) -> Path:
    return cache / "debian" / "root"


def _runs(program: Program, need: Need) -> bool:
    try:
        done = subprocess.run(
            [program.path, *need.probe],
            env=child_environment(program.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == need.probe_code


def _unpacked_environment(root: Path) -> dict[str, str]:
    triplet = f"{platform.machine()}-linux-gnu"
    libraries = [root / "usr/lib" / triplet, root / "lib" / triplet, root / "usr/lib"]
    compiled = root / "usr/lib" / triplet / "perl5"
    modules = [root / "usr/share/perl5", compiled, *sorted(compiled.glob("5.*"))]
    return {
        "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        "PERL5LIB": ":".join(map(str, modules)),
        "FONTCONFIG_FILE": str(root / "fonts.conf"),
    }


def _fetch(packages: Sequence[str], cache: Path, install: bool = True) -> None:
    """By apt. Raises OSError or SubprocessError."""
    if shutil.which("apt-get") is None:
        raise FileNotFoundError("this system has no apt-get")
    if install and os.geteuid() == 0:
        _run(["apt-get", "update"])
        _run(["apt-get", "install", "--yes", "--no-install-recommends", *packages])
    else:
        _unpack(packages, cache / "debian")


def _unpack(packages: Sequence[str], folder: Path) -> None:
    """Download what the packages need beyond what this system has, with lists of our own, and unpack it."""
    lists, archives, root = folder / "lists", folder / "archives", folder / "root"
    for place in (lists / "partial", archives / "partial", root):
        place.mkdir(parents=True, exist_ok=True)
    own = [
        *("-o", f"Dir::State::lists={lists}"),
        *("-o", f"Dir::Cache={folder}"),
        *("-o", f"Dir::Cache::archives={archives}"),
        *("-o", "Debug::NoLocking=1"),
    ]
    _run(["apt-get", *own, "update"])
    planned = _run(["apt-get", *own, "--simulate", "--no-install-recommends", "install", *packages])
    names = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
    if names:
        _run(["apt-get", *own, "download", *names], archives)
    for archive in sorted(archives.glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(archive), str(root)])
        archive.unlink()
    (root / "fonts.conf").write_text(
        '<?xml version="1.0"?><fontconfig>'
        f"<dir>{root / 'usr/share/fonts'}</dir><dir>/usr/share/fonts</dir><cachedir>{folder / 'fonts'}</cachedir>"
        '<include ignore_missing="yes">/etc/fonts/fonts.conf</include></fontconfig>\n'
    )
    shutil.rmtree(lists)


def _run(command: Sequence[str], folder: Path | None = None) -> str:
    """Standard output of a step. Raises OSError or SubprocessError."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=child_environment({"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=STEP_S,
        check=False,
    )
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command[0], done.stdout, done.stderr)
    return done.stdout


def _first_error(problem: Exception) -> str:
    """One line of what a step said."""
    if isinstance(problem, subprocess.CalledProcessError):
        lines = [line for line in problem.stderr.splitlines() if line.startswith("E:")] or problem.stderr.splitlines()
        return f"{problem.cmd} failed: {lines[0] if lines else f'exit code {problem.returncode}'}"
    return str(problem)


def wanted_by(names: str) -> list[str]:
    """Names by comma; `all`: those that the screenshot and the tests use. Raises StackError for an unknown one."""
    wanted = [*NEEDS, *COMPARED] if names == "all" else [name for name in names.split(",") if name]
    unknown = sorted(set(wanted) - {*NEEDS, *PEERS})
    if unknown:
        raise StackError(f"no program {unknown[0]!r}; there are all, {', '.join((*NEEDS, *PEERS))}")
    return wanted


def set_up(wanted: Sequence[str], place: Settings) -> list[str]:
    """Fetch what is missing; returns the lines to print. Tests skip what cannot be had; under CI that is an error
    (ProgramsMissing), because nobody reads the lines there."""
    try:
        return [f"{name} at {program.path}" for name, program in ensure(wanted, place.cache, _say).items()]
    except ProgramsMissing as problem:
        if place.ci:
            raise
        return [f"{problem}; what needs it is left out"]


def _say(text: str) -> None:
    print(f"setup: {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Exit code: 0 good, 1 a program could not be had, 2 there is none of that name."""
    try:
        wanted = wanted_by(",".join(sys.argv[1:]))
    except StackError as problem:
        _say(str(problem))
        return 2
    try:
        for line in set_up(wanted, load()):
            _say(line)
    except ProgramsMissing as problem:
        _say(str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
