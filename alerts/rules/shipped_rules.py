"""Rule files shipped with the package, for a new rule folder."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def seed_rules(folder: Path) -> bool:
    """Copy the shipped rule files into `folder` if it does not exist; return False if it does.

    An existing folder belongs to its owner: no file is ever added or restored."""
    if folder.exists():
        return False
    fresh = folder.with_name(folder.name + ".new")  # a crash between two files must not look like the owner's choice
    fresh.mkdir(parents=True, exist_ok=True)
    for source in files("alerts").joinpath("rules").iterdir():
        if source.name.endswith(".yaml"):
            (fresh / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    fresh.replace(folder)
    return True
