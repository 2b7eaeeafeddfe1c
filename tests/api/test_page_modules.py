"""Modules of the page: what one imports, the other exports. A browser would show an empty page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[2] / "artimon" / "api" / "static"
MODULES = {path.name: path.read_text(encoding="utf-8") for path in STATIC.glob("*.js")}
DECLARED = re.compile(r"^export (?:async )?(?:function\*?|class|const|let) (\w+)", re.MULTILINE)
LISTED = re.compile(r"^export \{([^}]*)\}", re.MULTILINE)
IMPORTED = re.compile(r'^import \{([^}]*)\} from "\./([^"]+)"', re.MULTILINE)
GENERATED = {"functions.js"}


def exported(text: str) -> set[str]:
    listed = [word.split(" as ")[-1].strip() for found in LISTED.findall(text) for word in found.split(",")]
    return {*DECLARED.findall(text), *listed}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_exist(name: str) -> None:
    for words, source in IMPORTED.findall(MODULES[name]):
        if source in GENERATED:
            continue
        wanted = {word.split(" as ")[0].strip() for word in words.split(",")} - {""}
        assert wanted <= exported(MODULES[source]), f"{name} imports from {source} what it does not export"


def test_modules_of_the_pages_are_there() -> None:
    for page in STATIC.glob("*.html"):
        for source in re.findall(r'src="static/([^"]+)"', page.read_text(encoding="utf-8")):
            assert (STATIC / source).is_file(), f"{page.name}: {source}"
