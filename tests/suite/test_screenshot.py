"""Place of the picture at the end of a proof: never over a file of the repository."""

from __future__ import annotations

from pathlib import Path

from scripts.proof.screenshot import DOCS, place_for


def test_a_run_leaves_the_checkout_as_it_was(tmp_path: Path) -> None:
    place = place_for(tmp_path)
    assert place.parent == DOCS
    assert f"docs/{place.name}" in (DOCS.parent / ".gitignore").read_text().splitlines()


def test_without_a_checkout_it_lies_beside_the_data(tmp_path: Path) -> None:
    somebody_elses = tmp_path / "site-packages" / "docs"
    somebody_elses.mkdir(parents=True)
    assert place_for(tmp_path, somebody_elses).parent == tmp_path
