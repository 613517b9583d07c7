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
    topics = typer.Typer(no_args_is_help=True, help="Manage the topics on your own Kafka.")
    topics.command()(create)
    app.add_typer(topics, name="topics")

    @topics.callback()
    def all_topics() -> None:
        """Manage the topics on your own Kafka."""


def create(
    context: typer.Context,
    conf: Annotated[
        list[Path] | None,
        typer.Option(help="A TOML file that overrides conf/base.toml, like the global --conf. May be repeated."),
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Replicas of each partition. Default: the default of the brokers.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show which topics are missing without creating them.")
    ] = False,
) -> None:
    """Create the missing topics on the brokers of kafka.bootstrap, with the partitions and settings they need.

    Existing topics are never changed; the command shows settings that differ from the required ones. It creates nothing
    and names the topics in an error if one has a wrong number of partitions, does not use the broker's clock, or has
    the wrong retention or compaction. `waystation up` creates the topics of the local stack itself.

    Examples:

        waystation topics create --conf my.toml --dry-run
        waystation topics create --conf my.toml --replicas 3
    """
    everywhere = shared(context).configuration
    files = [everywhere[0], *everywhere[len(OVERLAYS) :], *(path.absolute() for path in conf or [])]
    settings = with_secrets(load_settings(files, shared(context).environ))
    admin, declared = admin_client(settings.kafka.bootstrap, settings.kafka.client), declared_topics(settings)
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
    differ = [f"{name}={value} (required: {topic.config[name]})" for name, value in others.items()]
    return f"exists: {topic.name}{', but ' if differ else ''}{', '.join(differ)}"


def _described(topic: Topic, replicas: int | None) -> str:
    parts = [f"partitions={topic.partitions}", *([f"replicas={replicas}"] if replicas else [])]
    return f"{topic.name} {' '.join([*parts, *(f'{name}={value}' for name, value in topic.config.items())])}"
