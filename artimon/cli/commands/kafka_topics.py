"""Commands about the topics in Kafka: make them, check them, move the samples to another number of partitions."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from artimon.cli.common import DataOption, JsonOption, KafkaOption, Panel, located, say

PANEL = Panel.OPERATE
app = typer.Typer()
topics_app = typer.Typer(no_args_is_help=True, help="The topics in Kafka.")
app.add_typer(topics_app, name="topics")

PrefixOption = Annotated[str, typer.Option(help="First word of the names of the topics.")]
ReplicationOption = Annotated[
    int, typer.Option(min=0, max=9, help="Copies of each partition (0: 3, or as many as there are brokers).")
]
SegmentOption = Annotated[
    int, typer.Option(min=0, help="segment.bytes of the topic of samples (0: as the brokers are set).")
]
UNREACHED, DIFFERENT = 2, 1


@topics_app.command("create")
def create(
    partitions: Annotated[int, typer.Option(min=1, max=1024, help="Of the topic of samples.")] = 8,
    replication: ReplicationOption = 0,
    segment_bytes: SegmentOption = 0,
    prefix: PrefixOption = "artimon",
    kafka: KafkaOption = None,
    data: DataOption = None,
) -> None:
    """Make the topics that are missing; those that exist stay as they are (see `artimon topics check`)."""
    from artimon.model.topic_check import TopicsUnknown
    from artimon.model.topic_spec import platform_topics
    from artimon.stack.topics import make_topics, usual_replication

    place = kafka or located(data).kafka
    try:
        copies = replication or usual_replication(place)
        made = make_topics(place, platform_topics(prefix, partitions, copies, segment_bytes))
    except (TopicsUnknown, RuntimeError, OSError) as problem:
        say(f"artimon: {problem}")
        raise typer.Exit(UNREACHED) from None
    print("\n".join(f"made {name}" for name in made) or "all topics exist")


@topics_app.command("check")
def check(
    partitions: Annotated[int, typer.Option(min=0, max=1024, help="Wished of the samples (0: as many as now).")] = 0,
    replication: ReplicationOption = 0,
    segment_bytes: SegmentOption = 0,
    prefix: PrefixOption = "artimon",
    kafka: KafkaOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print each difference from what the topics must be, with the command that mends it; exit 1 if there is one."""
    from artimon.model.topic_check import TopicsUnknown, check_topics
    from artimon.model.topic_spec import platform_topics
    from artimon.stack.topics import usual_replication

    place = kafka or located(data).kafka
    try:
        copies = replication or usual_replication(place)
        found = check_topics(place, platform_topics(prefix, partitions, copies, segment_bytes))
    except TopicsUnknown as problem:
        say(f"artimon: {problem}")
        raise typer.Exit(UNREACHED) from None
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        for one in found:
            print(f"{'must be mended' if one.vital else 'should be mended'}: {one.topic}: {one.text}")
            print(f"    {one.command or 'no command mends it'}")
        say(f"{len(found)} differences" if found else "all topics are as they must be")
    raise typer.Exit(DIFFERENT if found else 0)


@topics_app.command("grow")
def grow(
    partitions: Annotated[int, typer.Option(min=1, max=1024, help="Of the new topic of samples.")],
    prefix: PrefixOption = "artimon",
    kafka: KafkaOption = None,
    data: DataOption = None,
) -> None:
    """Move the samples to a new topic with another number of partitions, while everything runs."""
    from artimon.model.topic_check import TopicsUnknown
    from artimon.stack.topics import grow_samples

    try:
        old, new = grow_samples(kafka or located(data).kafka, prefix, partitions)
    except TopicsUnknown as problem:
        say(f"artimon: {problem}")
        raise typer.Exit(UNREACHED) from None
    print(f"{new} has {partitions} partitions and takes what is sent from now on")
    print(f"{old} takes nothing more; Spark reads it to its end, then {new}; keep it for 76 hours")
