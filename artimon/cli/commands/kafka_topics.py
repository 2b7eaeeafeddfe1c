"""Commands for the topics in Kafka: create, check, and move the samples to another number of partitions."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Annotated

import typer

from artimon.cli.common import JsonOption, Panel, exits, print_error
from artimon.cli.settings_command import OptionValues, settings_command

PANEL = Panel.OPERATE
app = typer.Typer()
topics_app = typer.Typer(no_args_is_help=True, help="The topics in Kafka.")
app.add_typer(topics_app, name="topics")

SETTINGS = "artimon.stack.topics:TopicSettings"
UNREACHED, DIFFERENT = 2, 1


def _kafka_errors() -> AbstractContextManager[None]:
    """Print a message and exit with UNREACHED if Kafka does not answer."""
    from artimon.runtime.topic_check import TopicsUnknownError

    return exits(TopicsUnknownError, RuntimeError, OSError, code=UNREACHED)


@settings_command(topics_app, SETTINGS)
def create(
    given: OptionValues,
    partitions: Annotated[int, typer.Option(min=1, max=1024, help="Number of partitions of the samples topic.")] = 8,
) -> None:
    """Create missing topics; existing ones stay as they are (see `artimon topics check`)."""
    from artimon.stack.topics import TopicSettings, make_topics

    settings = given.make(TopicSettings)
    with _kafka_errors():
        made = make_topics(settings.kafka, settings.topics(partitions))
    print("\n".join(f"created {name}" for name in made) or "all topics exist")


@settings_command(topics_app, SETTINGS)
def check(
    given: OptionValues,
    partitions: Annotated[
        int, typer.Option(min=0, max=1024, help="Expected number for the samples topic; 0: any.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Print each wrong setting of a topic with the command that corrects it; exit 1 if there is one."""
    from artimon.runtime.topic_check import check_topics
    from artimon.stack.topics import TopicSettings

    settings = given.make(TopicSettings)
    with _kafka_errors():
        found = check_topics(settings.kafka, settings.topics(partitions))
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        for one in found:
            print(f"{'must be changed' if one.vital else 'should be changed'}: {one.topic}: {one.text}")
            print(f"    {one.command or 'no command can change it'}")
        print_error(f"{len(found)} differences" if found else "all topics are set correctly")
    raise typer.Exit(DIFFERENT if found else 0)


@settings_command(topics_app, "artimon.stack.topics:TopicOptions")
def grow(
    given: OptionValues,
    partitions: Annotated[int, typer.Option(min=1, max=1024, help="Number for the new samples topic.")],
) -> None:
    """Move the samples to a new topic with another number of partitions, while everything runs."""
    from artimon.stack.topics import TopicOptions, migrate_samples

    place = given.make(TopicOptions)
    with _kafka_errors():
        old, new = migrate_samples(place.kafka, place.prefix, partitions)
    print(f"{new} has {partitions} partitions and receives all batches from now on")
    print(f"{old} is sealed; Spark reads it to its end, then {new}; keep it for 76 hours")
