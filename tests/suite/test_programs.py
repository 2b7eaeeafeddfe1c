"""Debian programs: found where they are, fetched where they are not, named where they cannot be had."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from scripts import programs
from scripts.programs import Need, ProgramsMissing, ensure, find

NEED = Need(("artimon-probe",), ("usr/bin/artimon-probe",), ("artimon-probe-package",), ("--version",))

APT = """\
#!/bin/sh
echo "$@" >> {log}
case "$*" in
*--simulate*) echo "Inst artimon-probe-package (1.0 Debian:12 [all])" ;;
*download*) cp {deb} . ;;
*install*) cp {program} {bin}/artimon-probe ;;
esac
"""


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first on the path; the program is asked for as `probe`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(programs, "NEEDS", {"probe": NEED})
    return folder


@pytest.fixture
def apt(tmp_path: Path, bin_folder: Path) -> Path:
    """An apt-get that knows one package, and the log of how it was called."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not on this machine: packages cannot be unpacked")
    program = script(tmp_path / "package/usr/bin/artimon-probe", "#!/bin/sh\nexit 0\n")
    control = tmp_path / "package/DEBIAN/control"
    control.parent.mkdir()
    control.write_text(
        "Package: artimon-probe-package\nVersion: 1.0\nArchitecture: all\nMaintainer: x\nDescription: x\n"
    )
    deb = tmp_path / "artimon-probe-package_1.0_all.deb"
    subprocess.run(["dpkg-deb", "--build", str(tmp_path / "package"), str(deb)], check=True, capture_output=True)
    log = tmp_path / "apt.log"
    script(bin_folder / "apt-get", APT.format(log=log, deb=deb, program=program, bin=bin_folder))
    return log


def test_a_program_on_the_path_is_taken_as_it_is(tmp_path: Path, bin_folder: Path) -> None:
    path = script(bin_folder / "artimon-probe", "#!/bin/sh\nexit 0\n")
    found = ensure(["probe"], tmp_path / "cache", print)["probe"]
    assert (found.path, dict(found.environment)) == (path, {})


def test_a_program_that_does_not_run_is_not_found(tmp_path: Path, bin_folder: Path) -> None:
    script(bin_folder / "artimon-probe", "#!/bin/sh\nexit 3\n")
    assert find("probe", tmp_path / "cache") is None


def test_root_installs(tmp_path: Path, bin_folder: Path, apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert ensure(["probe"], tmp_path / "cache", print)["probe"].path == bin_folder / "artimon-probe"
    assert "install --yes --no-install-recommends artimon-probe-package" in apt.read_text()


def test_another_user_unpacks_into_the_cache(
    tmp_path: Path, apt: Path, bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    cache = tmp_path / "cache"
    found = ensure(["probe"], cache, print)["probe"]
    assert found.path == cache / "debian/root/usr/bin/artimon-probe"
    assert str(cache) in found.environment["LD_LIBRARY_PATH"]
    calls = len(apt.read_text().splitlines())
    assert ensure(["probe"], cache, print) == {"probe": found}
    assert len(apt.read_text().splitlines()) == calls, "what is there is not fetched again"


def test_what_cannot_be_had_says_why_and_what_to_do(
    tmp_path: Path, bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(bin_folder / "apt-get", "#!/bin/sh\necho 'E: no network' >&2\nexit 100\n")
    with pytest.raises(ProgramsMissing) as caught:
        ensure(["probe"], tmp_path / "cache", print)
    assert str(caught.value) == (
        "probe is not here: apt-get failed: E: no network; `apt-get install artimon-probe-package`"
    )


def test_a_package_that_is_unknown_keeps_no_other_from_coming(
    tmp_path: Path, bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    absent = Need(("artimon-absent",), ("usr/bin/artimon-absent",), ("absent-package",), ("--version",))
    monkeypatch.setattr(programs, "NEEDS", {"absent": absent, "probe": NEED})
    made = bin_folder / "artimon-probe"
    script(
        bin_folder / "apt-get",
        '#!/bin/sh\ncase "$*" in\n*absent*) echo "E: Unable to locate package" >&2; exit 100 ;;\n'
        f"*install*) printf '#!/bin/sh\\n' > {made}; chmod 755 {made} ;;\nesac\n",
    )
    with pytest.raises(ProgramsMissing) as caught:
        ensure(["absent", "probe"], tmp_path / "cache", print)
    assert list(caught.value.reasons) == ["absent"]
    assert "Unable to locate package" in str(caught.value)
    assert made.exists()


def test_peers_of_benchmarks_are_never_installed(
    tmp_path: Path, bin_folder: Path, apt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their packages would start servers; root or not, they are unpacked into the cache."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(programs, "NEEDS", {})
    monkeypatch.setattr(programs, "PEERS", {"probe": NEED})
    found = ensure(["probe"], tmp_path / "cache", print)["probe"]
    assert found.path.is_relative_to(tmp_path / "cache")
    assert "install --yes" not in apt.read_text()
