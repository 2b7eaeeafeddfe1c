"""Commands made from settings classes: one annotated field is an option, with its help, bounds, default and checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from typer.testing import CliRunner

from artimon.cli.settings_command import OptionValues, settings_command
from artimon.runtime.process_options import (
    MiB,
    Option,
    StackData,
    Zookeeper,
    in_seconds,
    process_name,
)


@dataclass(frozen=True, slots=True)
class InnerSettings:
    bytes: Annotated[int, Option("Most bytes.", "--roll-mib", 1, 1024, unit=MiB)] = 64 * MiB
    count: int = 5


@dataclass(frozen=True, slots=True)
class OuterSettings:
    id: Annotated[str, process_name("Name.", usual="one")]
    zookeeper: Zookeeper
    data: StackData
    inner: InnerSettings = field(default_factory=InnerSettings)
    level: Annotated[Literal["kafka", "hdfs"], Option("Level.")] = "hdfs"
    wait_s: Annotated[float, in_seconds("Wait.", "--wait")] = 30.0
    numbers: Annotated[
        tuple[int, ...],
        Option("Numbers.", "--number", read=lambda texts: tuple(map(int, texts)), multiple=True),
    ] = (7,)
    file: Annotated[Path | None, Option("File.")] = None
    on: Annotated[bool, Option("On or off.")] = True


app = typer.Typer()
made: list[tuple[OuterSettings, bool]] = []


@settings_command(app, f"{__name__}:OuterSettings")
def start(given: OptionValues, twice: Annotated[bool, typer.Option("--twice", help="Own.")] = False) -> None:
    """Start it."""
    made.append((given.make(OuterSettings), twice))


def run(*words: str) -> tuple[OuterSettings, bool]:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return made.pop()


def test_defaults_are_those_of_the_class_and_of_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARTIMON_ZOOKEEPER", "zk:1")
    assert run("--data", str(tmp_path)) == (OuterSettings("one", "zk:1", tmp_path), False)


def test_everything_that_is_written_is_read(tmp_path: Path) -> None:
    words = ["--id", "two", "--zookeeper", "z:2", "--data", str(tmp_path), "--roll-mib", "2", "--level", "kafka"]
    words += ["--wait", "1m", "--number", "1", "--number", "2", "--file", "f", "--no-on", "--twice"]
    wanted = OuterSettings("two", "z:2", tmp_path, InnerSettings(2 * MiB), "kafka", 60.0, (1, 2), Path("f"), False)
    assert run(*words) == (wanted, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--id", "a/b"), "cannot be a name"),
        (("--wait", "5x"), "not a duration"),
        (("--wait", "1ms"), "too short"),
        (("--roll-mib", "0"), "greater than or equal to 1"),
        (("--number", "x"), "invalid literal"),
        (("--level", "disk"), "kafka"),
    ],
)
def test_what_cannot_be_read_is_misuse(words: tuple[str, ...], told: str) -> None:
    result = CliRunner().invoke(app, list(words))
    assert (result.exit_code, told in result.output) == (2, True), result.output
    assert not made


def test_the_help_has_texts_and_defaults() -> None:
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    for words in ("Start it.", "Most bytes.", "[default: 64]", "[default: 30s]", "[default: one]", "--no-on", "Own."):
        assert words in text
