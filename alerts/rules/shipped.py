"""The rule files that come with the package, for a folder that has none yet."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def seed_rules(folder: Path) -> bool:
    """Copy the shipped rule files into `folder` if it does not exist yet; whether it did not.

    A folder that exists is its owner's: nothing is ever added to it or brought back."""
    if folder.exists():
        return False
    fresh = folder.with_name(folder.name + ".new")  # a crash between two files must not pass for a choice
    fresh.mkdir(parents=True, exist_ok=True)
    for source in files("alerts").joinpath("rules").iterdir():
        if source.name.endswith(".yaml"):
            (fresh / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    fresh.replace(folder)
    return True
