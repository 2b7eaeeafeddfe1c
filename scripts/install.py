"""The work of ./scripts/setup. Runs with the standard library alone, before anything is installed."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = "scripts/build.lock"
LOCKS = {"run": "scripts/requirements.lock", "tests": "scripts/tests.lock"}
"""Pinned packages of each set; those of the tests, of the documents and of the checks are half of the size."""
SIZES_MB = {"run": 1260, "tests": 1150}
"""Approximate size of each set on the disk."""
BUILT = "pyspark"
"""The largest package, a third of all bytes. It comes as source, so that pip builds a wheel, beside the others."""
JARS_MB = 120
"""Approximate size of the jars that running needs."""
STILL_S = 10
"""A step that takes longer says so, each time, with the bytes that it has written."""

sys.path.insert(0, str(ROOT))

from artimon.runtime import settings as settings_module  # noqa: E402
from artimon.stack.java import find_java  # noqa: E402
from artimon.stack.stack_errors import JavaMissingError  # noqa: E402


class SetupFailed(Exception):
    """A step that did not work; the text says which and what to do."""


def say(text: str) -> None:
    """Print the present action for the waiting user."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


def wanted_stamp(name: str) -> str:
    """Digest of all that decides what a set holds: pins, both projects, Python, place of the checkout."""
    digest = hashlib.sha256(f"{sys.version}\n{sys.platform}\n{ROOT}\n".encode())
    for path in (BUILD, LOCKS[name], "pyproject.toml", "bookkeeper/pyproject.toml"):
        digest.update((ROOT / path).read_bytes())
    return digest.hexdigest()


def written_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder; files that vanish meanwhile count as 0."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def run(command: Sequence[str | Path], remedy: str, env: Mapping[str, str] | None = None) -> None:
    """Run one step in the checkout. Raises SetupFailed with `remedy`."""
    done = subprocess.run(list(map(str, command)), cwd=ROOT, stdin=subprocess.DEVNULL, env=env, check=False)
    if done.returncode:
        raise SetupFailed(f"`{' '.join(map(str, command[:6]))} ...` failed with {done.returncode}: {remedy}")


@contextlib.contextmanager
def progress(describe: Callable[[], str]) -> Iterator[None]:
    """While the body runs, say every STILL_S seconds how far it is."""
    began, stop = time.monotonic(), threading.Event()

    def report() -> None:
        while not stop.wait(STILL_S):
            say(f"{describe()}, after {time.monotonic() - began:.0f} s")

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def describe_packages(library: Path, expected_mb: int, downloads: Path) -> str:
    """Return how much of the packages is in `library`, and what `downloads` holds."""
    written, fetched = (written_bytes(one) / 1e6 for one in (library, downloads))
    return f"{written:,.0f} of about {expected_mb:,} MB written ({fetched:,.0f} MB downloaded or unpacked)"


def describe_jars(folder: Path) -> str:
    """Return how much of the jars is fetched."""
    if not folder.exists():
        return "jars are complete, servers are prepared"
    return f"{written_bytes(folder) / 1e6:,.0f} of about {JARS_MB} MB of jars fetched"


def split_lock(lock: Path, folder: Path) -> list[Path]:
    """Write the requirements of a lock file into `folder`: those without BUILT, and BUILT if it is one of them."""
    entries = lock.read_text().replace("\\\n", " ").splitlines()
    built = [entry for entry in entries if entry.startswith(f"{BUILT}==")]
    parts = {"": [entry for entry in entries if entry not in built], f"-{BUILT}": built}
    files = {folder / f"{lock.stem}{name}.txt": part for name, part in parts.items() if part}
    for file, part in files.items():
        file.write_text("\n".join([*part, ""]))
    return list(files)


def make_environment(venv: Path) -> None:
    """An environment of this Python at `venv`; one of another Python, or a broken one, is replaced."""
    program = venv / "bin" / "python"
    if program.exists():
        same = subprocess.run(
            [program, "-c", "import sys, pip; print(sys.version)"], capture_output=True, text=True, check=False
        )
        if same.returncode == 0 and same.stdout.strip() == sys.version.strip():
            return
    if venv.exists():
        if not (venv / "pyvenv.cfg").exists():
            raise SetupFailed(f"{venv} exists and is no Python environment: move it away, or set ARTIMON_VENV")
        say(f"replacing {venv}, which is broken or of another Python")
        shutil.rmtree(venv)
    say(f"making {venv} with {sys.executable}")
    run(
        [sys.executable, "-m", "venv", venv],
        "on Debian or Ubuntu the module is a package of its own: `apt-get install python3.11-venv`",
    )


def install(venv: Path, names: Sequence[str]) -> None:
    """Install the pinned packages of these sets side by side, then ours in place; what is there already stays."""
    pip: list[str | Path] = [
        venv / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
    ]
    pip += ["--no-compile", "--no-build-isolation", "--no-deps"]
    network = "check the network and run ./scripts/setup again"
    pinned = [*pip, "--require-hashes", "-r"]
    downloads, library = venv / "downloads", venv / "lib"
    downloads.mkdir(exist_ok=True)
    env, expected = {**os.environ, "TMPDIR": str(downloads)}, sum(SIZES_MB[name] for name in names)
    say(f"installing the pinned Python packages (the first time some minutes; about {expected:,} MB on the disk)")
    with progress(partial(describe_packages, library, expected, downloads)):
        run([*pinned, ROOT / BUILD], network, env)
        files = [file for name in names for file in split_lock(ROOT / LOCKS[name], downloads)]
        with ThreadPoolExecutor(len(files)) as pool:  # pip uses one core, or waits for the network
            list(pool.map(lambda file: run([*pinned, file], network, env), files))
    shutil.rmtree(downloads, ignore_errors=True)
    say("installing artimon and artimon-bookkeeper from this checkout")
    run([*pip, "-e", ROOT / "bookkeeper", "-e", ROOT], "see the lines above")


def build_kernels(venv: Path) -> None:
    """Build the compiled loops of shards and of receivers, which work without them, but more slowly."""
    for module in ("artimon.compute.kernels", "sources.receive.known_series", "sources.receive.known_points"):
        command = [str(venv / "bin" / "python"), "-m", module]
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["unknown"])[-1]
            say(f"{module}: not compiled, so shards or receivers will run at half of the speed or less ({reason})")


def finish(venv: Path, stamps: Mapping[Path, str]) -> None:
    """Build the compiled loops, and note that the sets are complete."""
    build_kernels(venv)
    for stamp, wanted in stamps.items():
        stamp.write_text(wanted)


def fetch_jars(venv: Path, cache: Path, arguments: Sequence[str]) -> None:
    """Fetch the jars of the servers."""
    with progress(partial(describe_jars, cache / "jars" / ".resolving")):
        run([venv / "bin" / "python", "-m", "artimon.cli", "setup", *arguments], "see the lines above")


def fetch_programs(venv: Path, programs: str) -> None:
    """Fetch Debian programs."""
    run([venv / "bin" / "python", "-m", "scripts.programs", programs], "see the lines above")


def set_up(venv: Path, names: Sequence[str], servers: Sequence[Callable[[], None]]) -> None:
    """The environment with these sets of packages, one process at a time, then what the servers need."""
    stamps = {venv / f"artimon-stamp-{name}": wanted_stamp(name) for name in names}
    venv.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(venv.parent / f".{venv.name.lstrip('.')}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    steps = list(servers)
    if any(not stamp.exists() or stamp.read_text() != wanted for stamp, wanted in stamps.items()):
        for stamp in stamps:
            stamp.unlink(missing_ok=True)
        make_environment(venv)
        install(venv, names)
        steps.append(partial(finish, venv, stamps))
    with ThreadPoolExecutor(3) as beside:  # jars and programs wait for the network most of the time
        for step in [beside.submit(step) for step in steps]:
            step.result()


def read_arguments() -> argparse.Namespace:
    """Options of ./scripts/setup."""
    parser = argparse.ArgumentParser("./scripts/setup", description="Sets up what ./scripts/run and the tests need.")
    parser.add_argument("--packages", action="store_true", help="only the Python packages")
    parser.add_argument("--tests", action="store_true", help="what tests, checks and documents need, too")
    parser.add_argument("--programs", default="", help="Debian programs to have too, by comma, or all")
    parser.add_argument("--verify", action="store_true", help="check the digest of every jar")
    return parser.parse_args()


def main() -> int:
    """Exit code: 0 ready, 1 a step failed, 2 something must be installed first."""
    asked, settings = read_arguments(), settings_module.load()
    try:
        find_java(settings)
        names = ("run", "tests") if asked.tests else ("run",)
        venv = settings.venv or ROOT / ".venv"
        more = ["--jars", "all", "--classes"] if asked.tests else []  # tests start the servers many times
        more += ["--verify"] if asked.verify else []
        servers = [partial(fetch_jars, venv, settings.cache, more)]
        servers += [partial(fetch_programs, venv, asked.programs)] if asked.programs else []
        set_up(venv, names, [] if asked.packages else servers)
    except JavaMissingError as problem:
        say(str(problem))
        return 2
    except SetupFailed as problem:
        say(str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
