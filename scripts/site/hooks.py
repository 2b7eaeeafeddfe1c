"""Hooks of mkdocs: generated pages (README, commands), the list of decisions, links to files of the repository."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
from mkdocs.structure.files import File, Files

from artimon.cli import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)#\s]*)")
OUTSIDE = "repository"
"""Folder of the site that holds the files outside docs/ that a page links to."""
DECISIONS = "DECISIONS"


def on_config(config: Any) -> Any:
    """Replace the entry DECISIONS of the navigation by all decision notes."""
    notes = [{_title(path): f"decisions/{path.name}"} for path in sorted((DOCS / "decisions").glob("*.md"))]
    _replace(config.nav, notes)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the home page, the reference of the command line, and the files that pages link to."""
    readme = LINK.sub(_in_docs, (ROOT / "README.md").read_text())
    files.append(File.generated(config, "index.md", content=readme))
    files.append(File.generated(config, "reference/cli.md", content=command_reference()))
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for target in _targets(page):
            if not target.is_relative_to(DOCS) and target.is_file():
                name = _copy_of(str(target.relative_to(ROOT)))
                if files.get_file_from_path(name) is None:
                    files.append(File.generated(config, name, abs_src_path=str(target)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links that leave docs/ to the copies on the site."""
    here = posixpath.dirname(page.file.src_uri)

    def place(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, found[2]))
        if not found[2] or not target.startswith("../"):
            return found[0]
        return found[1] + posixpath.relpath(_copy_of(target.removeprefix("../")), here or ".")

    return LINK.sub(place, markdown)


def _copy_of(name: str) -> str:
    """Place on the site of a file of the repository; Markdown would become a page of its own."""
    return f"{OUTSIDE}/{name}.txt" if name.endswith(".md") else f"{OUTSIDE}/{name}"


def command_reference() -> str:
    """Markdown of every command and its options."""
    lines = ["# Command line", "", "`artimon COMMAND --help` prints the same.", ""]
    for words, command in _commands(typer.main.get_command(app), ["artimon"]):
        lines += [f"## `{' '.join(words)}`", "", _paragraph(command.help), ""]
        rows = [_row(param) for param in command.params if not getattr(param, "hidden", False) and param.name != "help"]
        if rows:
            lines += ["| option | default | description |", "| --- | --- | --- |", *rows, ""]
    return "\n".join(lines)


def _commands(command: Any, words: list[str]) -> Iterator[tuple[list[str], Any]]:
    below = getattr(command, "commands", None)
    if below is None or command.invoke_without_command:
        yield words, command
    if below is None:
        return
    for name in sorted(below):
        if not below[name].hidden:
            yield from _commands(below[name], [*words, name])


def _row(param: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
    default = param.default
    shown = "" if default is None or callable(default) or default in (False, (), []) else f"`{default}`"
    cells = (names, shown, _paragraph(getattr(param, "help", None)))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _paragraph(text: str | None) -> str:
    """Text of a help without escapes and line ends, safe inside Markdown."""
    return " ".join((text or "").replace("\b", "").split()).replace("<", "&lt;").replace("*", "\\*")


def _title(path: Path) -> str:
    return path.read_text().partition("\n")[0].removeprefix("# ")


def _replace(entries: list[Any], notes: list[Any]) -> None:
    for entry in entries:
        for key, value in entry.items() if isinstance(entry, dict) else ():
            if value == DECISIONS:
                entry[key] = notes
            elif isinstance(value, list):
                _replace(value, notes)


def _in_docs(found: re.Match[str]) -> str:
    """Link of the README as seen from docs/: `docs/x` is `x`, all others lie outside."""
    target = found[2]
    if target.rstrip("/") == "docs/decisions":
        return f"{found[1]}decisions/{next(iter(sorted((DOCS / 'decisions').glob('*.md')))).name}"
    if target.rstrip("/") == "docs/formats":
        return f"{found[1]}formats/batch.md"
    return found[1] + (target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}")


def _targets(page: Path) -> Iterator[Path]:
    for _, target in LINK.findall(page.read_text()):
        if target:
            yield (page.parent / target).resolve()
