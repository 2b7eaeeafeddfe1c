"""Alert rules and dashboard of the demo, in the folders of a stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from artimon.stack.stack_state import running_state

PLACES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"alerts": ("demo_rules.yaml", "alerts/rules/demo.yaml"), "api": ("demo_dashboard.yaml", "dashboards/demo.yaml")}
)
"""Part that reads the file, name of the file in the package, and its place in the data of the stack."""


def place_files(data: Path) -> Iterator[tuple[Path, bool]]:
    """Write the files for the parts of the stack that runs on `data`.

    Yields each path, and False if its owner changed the file, which then stays. Raises NotRunningError, OSError."""
    parts = {part.name for part in running_state(data).parts}
    for part, (name, place) in PLACES.items():
        if part in parts:
            text = files("artimon.stack").joinpath(name).read_text(encoding="utf-8")
            yield data / place, place_file(data / place, text)


def place_file(place: Path, text: str) -> bool:
    """Write a file that is not there; return False if one with another text is."""
    if place.exists():
        return place.read_bytes() == text.encode()
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(f".{place.name}.new")  # no reader sees half of a file
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(place)
    return True
