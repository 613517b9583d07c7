"""`topics create`: creates the topics on your own Kafka. `up` creates those of the local stack."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.cli.context import OVERLAYS, shared
from jobs.output import output
from jobs.stack.topics import (
    AS_THE_BROKER_SAYS,
    admin_client,
    create_topics,
    declared_topics,
    missing_topics,
    other_settings,
)
from schemas.settings import load_settings, with_secrets
from schemas.topics import Topic


def register(app: typer.Typer) -> None:
    topics = typer.Typer(no_args_is_help=True, help="The topics on a Kafka of your own.")
    topics.command()(create)
    app.add_typer(topics, name="topics")

    @topics.callback()
    def all_topics() -> None:
        """The topics on a Kafka of your own."""


def create(
    context: typer.Context,
    conf: Annotated[
        list[Path] | None, typer.Option(help="As the global --conf: a TOML file laid over conf/base.toml.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Copies of each partition. Without it: as the brokers are configured.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is missing, and create nothing.")] = False,
) -> None:
    """Create the topics that are missing on the brokers of kafka.bootstrap, with the partitions and settings they need.

    Existing topics are not changed, so you may repeat it; settings that differ from the declared ones are shown. Topics
    are named, and nothing is created, if any has another number of partitions than the configuration, does not use the
    broker's clock, or is not kept or compacted as it must be. `waystation up` creates the local stack's topics.

    Examples:

        waystation topics create --conf my.toml --dry-run
        waystation topics create --conf my.toml --replicas 3
    """
    everywhere = shared(context).configuration
    files = [everywhere[0], *everywhere[len(OVERLAYS) :], *(path.absolute() for path in conf or [])]
    kafka = with_secrets(load_settings(files, shared(context).environ)).kafka
    admin, declared = admin_client(kafka.bootstrap, kafka.client), declared_topics(kafka)
    missing = missing_topics(admin, declared)
    others = other_settings(admin, (topic for topic in declared if topic not in missing))
    created = [] if dry_run else create_topics(admin, missing, replicas or AS_THE_BROKER_SAYS)
    terminal = output()
    for topic in declared:
        if topic in missing:
            terminal.print(f"{'created' if topic.name in created else 'missing'}: {_described(topic, replicas)}")
        else:
            terminal.print(_as_it_is(topic, others[topic.name]))


def _as_it_is(topic: Topic, others: dict[str, str]) -> str:
    differ = [f"{name}={value} (declared: {topic.config[name]})" for name, value in others.items()]
    return f"there: {topic.name}{' but ' if differ else ''}{', '.join(differ)}"


def _described(topic: Topic, replicas: int | None) -> str:
    parts = [f"partitions={topic.partitions}", *([f"replicas={replicas}"] if replicas else [])]
    return f"{topic.name} {' '.join([*parts, *(f'{name}={value}' for name, value in topic.config.items())])}"
