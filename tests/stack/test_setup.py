"""Set-up on machines that lack something, and what it must not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from artimon.runtime.settings import load
from artimon.stack.java import find_java, parse_version
from artimon.stack.stack_errors import JavaMissingError
from scripts import install
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]


def fake_java(folder: Path, version: str, modules: str) -> Path:
    """A JAVA_HOME whose java says what it is told to."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n[ $1 = -version ] && echo 'openjdk version \"{version}\"' >&2 || echo {modules}\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("no such thing", None),
    ],
)
def test_version_of_java(text: str, version: int | None) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("version", "modules", "said"),
    [
        ("11.0.2", "jdk.incubator.vector@11", "version 11"),
        ("17.0.1", "java.base@17", "without jdk.incubator.vector"),
    ],
)
def test_an_unfit_java_is_named_with_the_remedy(tmp_path: Path, version: str, modules: str, said: str) -> None:
    home = fake_java(tmp_path / "jdk", version, modules)
    with pytest.raises(JavaMissingError) as caught:
        find_java(load({"JAVA_HOME": str(home), "HOME": str(tmp_path)}))
    assert said in str(caught.value)
    assert "apt-get install openjdk-17-jdk-headless" in str(caught.value)


def test_java_home_wins(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "23.0.1", "jdk.incubator.vector@23")
    java = find_java(load({"JAVA_HOME": str(home), "HOME": str(tmp_path)}))
    assert (java.version, java.home) == (23, home)


def test_a_file_of_the_release_saves_the_start_of_a_jvm(tmp_path: Path) -> None:
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="21.0.4"\nMODULES="java.base jdk.incubator.vector"\n')
    java = find_java(load({"JAVA_HOME": str(tmp_path / "jdk"), "HOME": str(tmp_path)}))
    assert (java.version, java.program) == (21, program)


def test_setup_without_java_says_what_to_install_and_touches_nothing(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "8", "none")
    done = subprocess.run(
        [sys.executable, "-I", "-B", ROOT / "scripts" / "install.py"],
        env={"HOME": str(tmp_path), "JAVA_HOME": str(home), "PATH": "/nowhere", "ARTIMON_VENV": str(tmp_path / "venv")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "Install a full one" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_setup_without_python_says_what_to_install(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "dirname").symlink_to("/usr/bin/dirname")
    done = subprocess.run(
        ["/bin/sh", ROOT / "scripts" / "setup"],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "Python 3.11 is needed" in done.stderr


def test_what_setup_imports_needs_nothing_installed() -> None:
    """It runs before there is an environment."""
    modules = "artimon.runtime.settings, artimon.stack.java, artimon.stack.stack_errors"
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {modules}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_requirement_is_pinned_with_hashes() -> None:
    for name in ("requirements.lock", "tests.lock", "build.lock"):
        entries = (ROOT / "scripts" / name).read_text().replace("\\\n", " ").splitlines()
        for entry in (entry for entry in entries if entry and not entry.startswith("#")):
            assert "==" in entry, entry
            assert "--hash=sha256:" in entry, entry


def test_progress_tells_the_bytes_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(install, "STILL_S", 0.01)
    monkeypatch.setattr(install, "say", told.append)
    library, downloads = tmp_path / "lib", tmp_path / "downloads"
    for folder, size in ((library, 3_000_000), (downloads, 2_000_000)):
        folder.mkdir()
        (folder / "wheel").write_bytes(bytes(size))
    with install.progress(lambda: install.describe_packages(library, 950, downloads)):
        eventually(lambda: told)
    assert told[0].startswith("3 of about 950 MB written (2 MB downloaded or unpacked), after ")
    count = len(told)
    assert install.written_bytes(library) == 3_000_000
    assert len(told) == count, "it says nothing after its end"


def test_the_package_that_pip_builds_has_a_process_of_its_own(tmp_path: Path) -> None:
    """The parts together are the lock file, hashes included."""
    lock = ROOT / install.LOCKS["run"]
    others, built = install.split_lock(lock, tmp_path)
    assert [entry.partition("==")[0] for entry in built.read_text().splitlines()] == [install.BUILT]
    hashes = [file.read_text().count("--hash=sha256:") for file in (others, built)]
    assert min(hashes) > 0
    assert sum(hashes) == lock.read_text().count("--hash=sha256:")
    assert install.split_lock(ROOT / install.LOCKS["tests"], tmp_path) == [tmp_path / "tests.txt"]


def test_a_failed_step_says_the_remedy() -> None:
    with pytest.raises(install.SetupFailed, match="check the network"):
        install.run([sys.executable, "-c", "raise SystemExit(3)"], "check the network")
