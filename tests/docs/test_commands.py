"""Every command line of `artimon` that a document shows exists, with these options and values."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from artimon.cli import app
from pipeline.spark.spark_settings import read_properties
from query_dsl import parse
from query_dsl.promql import parse as parse_promql
from tests.docs.test_architecture import DOCUMENTS, ROOT

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`(artimon [^`\n]+)`")
SHELL = ("", "sh", "bash", "console", "shell")
START = re.compile(r"(?:^|[|;(]|&&|\$\()\s*(?:\w+=\S+\s+)*(artimon\s[^|;)#\n]*)")
PLACEHOLDER = re.compile(r"^(…|\.\.\.|\[.*|.*\|.*)$")


def lines_of(text: str) -> list[str]:
    """Command lines in blocks of shell and in spans of code; a line that ends with a backslash goes on."""
    found = []
    for language, block in FENCE.findall(text):
        if language in SHELL:
            found += [one for line in block.replace("\\\n", " ").splitlines() for one in commands_in(line)]
    return found + [one for one in SPAN.findall(FENCE.sub("", text)) if not one.startswith("artimon/")]


def commands_in(line: str) -> list[str]:
    """Each `artimon …` of a line; what stands in quotes belongs to it whole."""
    at = START.search(line)
    return [line[at.start(1) :]] if at else []


def words_of(line: str) -> list[str]:
    try:
        words = shlex.split(line, comments=True)[1:]
    except ValueError:
        return []
    for at, word in enumerate(words):
        if word in {"|", ">", "&&", ";", "&", "2>&1"}:
            return words[:at]
    return words


@cache
def whole_command() -> Any:
    return typer.main.get_command(app)


def takes_arguments(command: Any) -> bool:
    return any(param.param_type_name == "argument" for param in command.params)


def problem_of(line: str) -> str:
    """Return the error of a command line, "" if it is valid."""
    command = whole_command()
    words = words_of(line)
    while words and getattr(command, "commands", None):
        if words[0].startswith("-") or PLACEHOLDER.match(words[0]):
            return ""
        name = words.pop(0).rstrip(")\"'")
        default = command.commands.get(getattr(command, "default_command", ""))
        if name not in command.commands and default is not None and takes_arguments(default):
            command = default
            break
        if name not in command.commands:
            return f"there is no command {name!r}"
        command = command.commands[name]
    if command.context_settings.get("ignore_unknown_options"):
        return ""
    known = {name: param for param in command.params for name in (*param.opts, *param.secondary_opts)}
    for word in words:
        option = word.split("=")[0].strip("[]")
        if option.startswith("-") and option != "-" and option not in {"--help", *known} and not option[1:2].isdigit():
            return f"{command.name} has no option {option}"
    return ""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_exists(document: Path) -> None:
    found = {line: problem_of(line) for line in lines_of(document.read_text())}
    assert {line: problem for line, problem in found.items() if problem} == {}


SHOWN = re.compile(r"`((?:fetch|samples|absent)\([^`\n…]*)`")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_query_of_a_command_is_one(document: Path) -> None:
    """So that an operator's line does not end in an error of the language."""
    asked = [words for words in map(words_of, lines_of(document.read_text())) if words[:1] == ["query"]]
    for words in asked:
        for text in (word for word in words[1:] if "(" in word and "…" not in word and "..." not in word):
            (parse_promql if "--promql" in words else parse)(text)


@pytest.mark.parametrize("name", ["operations.md", "variables.md"])
def test_every_expression_to_watch_is_a_query(name: str) -> None:
    for text in SHOWN.findall((ROOT / "docs" / name).read_text()):
        parse(text)


def test_what_does_not_exist_is_found() -> None:
    assert problem_of("artimon staus") == "there is no command 'staus'"
    assert problem_of("artimon spark --no-such 1") == "spark has no option --no-such"
    assert problem_of("artimon deadletter replay --all --dry-run") == ""
    text = "```\nexport A=1; artimon nothing  # really\n```\nand `artimon history X --til now`\n"
    assert [problem_of(line) for line in lines_of(text)] == [
        "there is no command 'nothing'",
        "read has no option --til",
    ]


def test_operations_names_enough_commands() -> None:
    named = {words_of(line)[0] for line in lines_of((ROOT / "docs" / "operations.md").read_text())}
    assert {"status", "doctor", "logs", "query", "up", "spark", "compactor", "collector", "shard", "agent"} <= named


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples" / "deploy").rglob("*.properties")), ids=lambda path: path.name
)
def test_files_of_settings_can_be_read(path: Path) -> None:
    settings = read_properties(path)
    assert settings["spark.master"].split(":")[0] in {"spark", "yarn", "k8s"}
    assert "spark.pyspark.python" in settings
