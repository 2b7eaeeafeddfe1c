"""The documents name files that exist, and say what the program says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FOLDERS = "artimon|bookkeeper|sources|pipeline|varstore|query_dsl|scripts|tests|examples"
CODE = re.compile(rf"`((?:{FOLDERS})/[\w./-]+\.\w+)`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_a_document_names_exist(document: Path) -> None:
    text = document.read_text()
    missing = [name for name in CODE.findall(text) if not (ROOT / name).exists()]
    missing += [link for link in LINK.findall(text) if not (document.parent / link).exists()]
    assert not missing


def test_the_walk_of_one_sample_names_every_package_on_its_way() -> None:
    walked = {name.split("/")[0] for name in CODE.findall((ROOT / "docs" / "architecture.md").read_text())}
    assert walked >= {"bookkeeper", "sources", "pipeline", "varstore", "query_dsl", "artimon"}
