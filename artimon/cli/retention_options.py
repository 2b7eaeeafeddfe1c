"""Options of the retention of samples, by class."""

from __future__ import annotations

from typing import Annotated

import typer

from artimon.cli.common import option_validator


def _keep_days(text: str) -> object:
    from pipeline.compaction.compaction_settings import parse_keep

    return parse_keep(text)


def _keep_rules(texts: list[str]) -> object:
    from sources.state.retention_rules import parse_retention_rules

    return parse_retention_rules(texts)


DaysOption = Annotated[
    str,
    typer.Option(
        "--keep",
        help="CLASS=DAYS, by comma: retention of each class of samples; * means all others.",
        callback=option_validator(_keep_days),
    ),
]
KeepClassOption = Annotated[
    list[str] | None,
    typer.Option(
        "--keep-class",
        help="PATTERN=CLASS: retention class of variables whose name matches (see `--keep` of the compactor); may be "
        "repeated, the first match wins.",
        callback=option_validator(_keep_rules),
    ),
]
