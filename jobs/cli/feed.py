"""`feed`: the commands of the edge, so that `--help` lists them beside the platform's; and those about the
administration of feeds at gateways, and their logs on Kafka (S1, S3)."""

import contextlib
import secrets
import sys
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from edge.cli.feed import commands
from jobs.cli.access_options import over_http
from jobs.cli.connecting import Access
from jobs.cli.context import Shared, shared
from jobs.output import cell, errors, json_text, output
from jobs.text_tables import Column
from schemas.feed_api import FeedDetail, FeedList, FeedPlace
from schemas.feed_words import SubscriberMode

Feed = Annotated[str, typer.Argument(metavar="FEED", help="Name of the feed.")]


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


class Slot(StrEnum):
    ACTIVE = "active"
    BACKUP = "backup"


AsFormat = Annotated[Format, typer.Option(help="How to print the answer.")]


def register(app: typer.Typer) -> None:
    group = commands()
    for command in (list_feeds, status, subscribe, switch, replay):
        group.command("list" if command is list_feeds else None)(command)
    app.add_typer(group, name="feed")


@over_http
def list_feeds(
    context: typer.Context,
    format: AsFormat = Format.TABLE,
    *,
    access: Access,
) -> None:
    """List the redundant feeds that you may read, and whether they are redundant.

    Example: `waystation feed list --format json`
    """
    found: FeedList = access.feed_api(shared(context)).feeds()
    if format is Format.JSON:
        _print_json(found)
        return
    if not found.feeds:
        output().print("there are no feeds that you may read: feeds.names names those of the platform")
        return
    columns = [*map(Column, ("feed", "state", "active", "backup")), Column("subscribers", is_number=True)]
    rows = [
        [one.name, one.state, _place(one.active), _place(one.backup), str(one.subscribers), one.reason]
        for one in found.feeds
    ]
    output().show_table([*columns, Column("reason", is_prose=True)], rows)


@over_http
def status(
    context: typer.Context,
    feed: Feed,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every second until Ctrl-C.")] = False,
    format: AsFormat = Format.TABLE,
    *,
    access: Access,
) -> None:
    """Show a feed: its adapters, which stream is active and why, how far apart the streams are, and what would make it
    safer.

    Example: `waystation feed status radar --watch`
    """
    from jobs.cli.watch import watch as show_again

    api = access.feed_api(shared(context))
    show = _print_json if format is Format.JSON else _show
    if watch:
        show_again(lambda: api.feed(feed), show, 1.0, clear=format is Format.TABLE)
    else:
        show(api.feed(feed))


@over_http
def switch(
    context: typer.Context,
    feed: Feed,
    slot: Annotated[Slot, typer.Argument(help="The stream that is to be the active one.")],
    reason: Annotated[str, typer.Option(help="Why, for those who read the status.")] = "",
    format: AsFormat = Format.TABLE,
    *,
    access: Access,
) -> None:
    """Make the other stream of a feed the active one. Subscribers lose nothing: both streams flow all the time.

    Example: `waystation feed switch radar backup --reason maintenance`
    """
    api = access.feed_api(shared(context))
    found = api.switch(feed, slot.value, reason)
    if format is Format.JSON:
        _print_json(found)
    else:
        output().print(f"the {found.active} stream of {cell(feed)} is the active one; revision {found.revision}")


@over_http
def subscribe(
    context: typer.Context,
    feed: Feed,
    cold: Annotated[
        bool, typer.Option("--cold", help="Read the backup stream only for what is missing, and when it is needed.")
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Name of the subscriber at gateways. Default: one that is new each time.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Exit after this many messages.")] = None,
    *,
    access: Access,
) -> None:
    """Print a feed from now on as one stream, read from Kafka: one JSON object per line. `type` is `message`, or what
    happens to the stream: `suspected`, `recovered`, `lost`, `different`, `feed`.

    Nothing is missing or twice whichever adapter fails. A run begins anew: it keeps no position. It needs access to
    Kafka, by the section [kafka] of the configuration.

    Example: `waystation feed subscribe radar --count 10`
    """
    from feeds.merge_settings import MergeSettings
    from jobs.feeds.feed_log import FeedLog
    from jobs.feeds.merged_feed import MergedFeed
    from jobs.feeds.subscribing import GatewayThread, Subscribing

    options = shared(context)
    api = access.feed_api(options)
    mode: SubscriberMode = "cold" if cold else "warm"
    name = name or f"cli-{secrets.token_hex(4)}"
    pair = api.subscribe(feed, name, mode)
    log = FeedLog(*_kafka(options), pair.topic, pair.partitions)
    merged, gateway = MergedFeed(MergeSettings()), GatewayThread(api, feed, name, mode, pair.ttl_s / 3)
    warn = partial(errors().print, style="yellow")
    subscribing = Subscribing(log, merged, _print_line, warn, mode, count)
    try:
        with contextlib.suppress(KeyboardInterrupt):  # the usual way to end it
            subscribing.learn(api.feed(feed))
            gateway.start()
            while not subscribing.is_done:
                subscribing.step()
                while not gateway.found.empty():
                    subscribing.learn(gateway.found.get())
    finally:
        gateway.stop()
        log.close()
        errors().print(subscribing.summary(), style="dim")
        with contextlib.suppress(Exception):  # it lapses by itself
            api.unsubscribe(feed, name)


def replay(
    context: typer.Context,
    feed: Feed,
    begin: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Append time of the first message, ISO 8601 in UTC.")
    ] = None,
    sequence: Annotated[int | None, typer.Option(min=0, help="Number of the first message; needs --stream.")] = None,
    stream: Annotated[str | None, typer.Option(help="Only this source stream, name@epoch.")] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="TIME|N", help="Up to this time; with --sequence, up to and including this number."),
    ] = None,
    slot: Annotated[
        Slot | None, typer.Option(help="One stream as its adapter wrote it. Default: both, merged.")
    ] = None,
) -> None:
    """Print what Kafka still has of a feed, as JSON lines: merged as a subscriber gets it, with what was lost; or one
    of the two streams as it is, with repeats. With --sequence the whole log is read, or from --from on.

    Examples:

        waystation feed replay radar --from 2026-11-27T06:00 --to 2026-11-27T06:05
        waystation feed replay radar --stream radar@0 --sequence 763445 --to 763545 --slot backup
    """
    from feeds.message import Feed as Stream
    from feeds.message import topic_of
    from jobs.feeds.feed_log import FeedLog
    from jobs.feeds.replaying import Part, merged, raw

    if begin is None and sequence is None:
        raise typer.BadParameter("give --from TIME, or --sequence N and --stream")
    if sequence is not None and stream is None:
        raise typer.BadParameter("--sequence needs --stream: each source stream has numbers of its own")
    settings = shared(context).settings()
    log = FeedLog(*_kafka(shared(context)), topic_of(settings.kafka.prefix, feed), settings.feeds.partitions)
    until = None if to is None or sequence is not None else _time_ms(to)
    part = Part(stream, None if begin is None else _time_ms(begin), until, sequence, _number(to, sequence))
    lines = merged(log, part) if slot is None else raw(log, Stream[slot.name], part)
    for line in lines:
        _print_line(line)


def _number(to: str | None, sequence: int | None) -> int | None:
    if to is None or sequence is None:
        return None
    if not to.isdecimal() or int(to) < sequence:
        raise typer.BadParameter(f"--to {to!r} is not a number from {sequence} on: with --sequence write a number")
    return int(to)


def _time_ms(text: str) -> int:
    """ISO 8601; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time: write 2026-11-27T06:00 (UTC)") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def _kafka(options: Shared) -> tuple[str, dict[str, str]]:
    """Bootstrap and client settings: of the running stack if there is one, else of the configuration."""
    from jobs.stack.state import state_if_running

    kafka, running = options.settings().kafka, state_if_running(options.data())
    return kafka.bootstrap if running is None else running.bootstrap, kafka.client


def _show(found: FeedDetail) -> None:
    terminal = output()
    assignment = found.assignment
    by = f" by {assignment.by}" if assignment.by else ""
    pair = "–" if found.pair is None else found.pair.refused or f"numbers from {found.pair.numbers_from}"
    facts = {
        "feed": found.name,
        "state": f"{found.state}: {found.reason}" if found.reason else found.state,
        "active": _place(found.active) or "–",
        "backup": _place(found.backup) or "–",
        "assignment": f"{assignment.active}, revision {assignment.revision}{by}",
        "assigned because": assignment.reason or "–",
        "pair": pair,
        "subscribers": found.subscribers,
        "lag, messages": ", ".join(f"{one.stream}: {one.lag}" for one in found.lag) or "–",
    }
    terminal.show_facts(facts, title="feed")
    names = ("adapter", "slot", "state", "alive", "machine", "zone", "source", "messages", "malformed")
    columns = [Column(name, is_number=name in names[-2:]) for name in names]
    rows = [
        [cell(value) for value in (a.name, a.slot, a.state, a.alive, a.machine, a.zone, a.source)]
        + [str(a.messages), str(a.malformed)]
        for a in found.adapters
    ]
    terminal.show_table(columns, rows, title="adapters")
    for sentence in found.advice:
        terminal.print(sentence, style="yellow")


def _place(place: FeedPlace | None) -> str:
    if place is None:
        return ""
    zone = f", {place.zone}" if place.zone else ""
    return f"{place.adapter} ({place.slot}, on {place.machine}{zone})"


def _print_json(content: object) -> None:
    import msgspec

    sys.stdout.write(json_text(msgspec.to_builtins(content)))


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
