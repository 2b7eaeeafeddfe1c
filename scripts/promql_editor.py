"""Builds the PromQL editor of the page from packages of npm, pinned in scripts/editor/package-lock.json.

python -m scripts.promql_editor [--check]

Writes artimon/api/static/vendor/codemirror: one module, and the licences of what is in it. `--check` writes nothing and
fails if the files differ. Needs Node.js 18 or newer with npm; nothing else does, as the files are in the repository."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from scripts.node_packages import NodeError, install, run

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "scripts" / "editor"
TARGET = ROOT / "artimon" / "api" / "static" / "vendor" / "codemirror"
MODULE, LICENCES = "promql-parts.mjs", "LICENSES.txt"
OPTIONS = ("--bundle", "--minify", "--format=esm", "--target=es2022", "--charset=utf8", "--legal-comments=none")


def build(folder: Path) -> Mapping[str, bytes]:
    """Install the packages into `folder` and return the files by name."""
    for name in ("package.json", "package-lock.json", "promql_parts.mjs"):
        shutil.copyfile(SOURCE / name, folder / name)
    install(folder)
    command = ["node_modules/.bin/esbuild", "promql_parts.mjs", *OPTIONS, "--metafile=meta.json", "--outfile=out.mjs"]
    run(command, folder)
    inputs = json.loads((folder / "meta.json").read_text())["inputs"]
    return {MODULE: (folder / "out.mjs").read_bytes(), LICENCES: licences(folder, inputs).encode()}


def licences(folder: Path, inputs: Mapping[str, object]) -> str:
    """Return name, version and licence of each package that has a file among `inputs`."""
    packages = set()
    for path in inputs:
        parts = Path(path).parts
        if parts[0] == "node_modules":
            packages.add("/".join(parts[1:3] if parts[1].startswith("@") else parts[1:2]))
    found = []
    for name in sorted(packages):
        place = folder / "node_modules" / name
        about = json.loads((place / "package.json").read_text())
        (text,) = [one.read_text() for one in sorted(place.iterdir()) if one.name.upper().startswith("LICEN")][:1]
        found.append(f"{name} {about['version']} ({about['license']})\n\n{text.strip()}\n")
    return ("\n" + "-" * 80 + "\n\n").join(found)


def main() -> int:
    """Exit code: 0 good, 1 the files differ."""
    options = argparse.ArgumentParser(description="Build the PromQL editor of the page.")
    options.add_argument("--check", action="store_true", help="write nothing, fail if the files differ")
    check = options.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        try:
            made = build(Path(folder))
        except NodeError as problem:
            raise SystemExit(str(problem)) from None
    if check:
        stale = [name for name, data in made.items() if not _same(TARGET / name, data)]
        print(
            "\n".join(f"{name} differs: run python -m scripts.promql_editor" for name in stale), end="", file=sys.stderr
        )
        return 1 if stale else 0
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, data in made.items():
        (TARGET / name).write_bytes(data)
        print(f"{TARGET / name}: {len(data):,} bytes")
    return 0


def _same(path: Path, data: bytes) -> bool:
    return path.is_file() and path.read_bytes() == data


if __name__ == "__main__":
    sys.exit(main())
