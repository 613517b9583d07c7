"""Clients: a searchable list, one client's page, and those whose queues are longest."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.console import messages
from gateway.console.parts import ROWS, UNKNOWN, Action, Cell, Field, Page, Section, Table, link, name
from gateway.console.text import age, age_cell, bytes_words, number

PATH = "/console/clients"
CLIENT_PATH = "/console/client"
QUEUES_PATH = "/console/queues"

_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}")
"""Client ids that are written into commands to copy: nothing that a shell or SQL reads as anything else."""

_HEADINGS = ("client", "state", "since", "user", "peer", "protocol", "subscriptions", "queued", "bytes", "in flight")


def page(found: Mapping[str, Any], asked: Mapping[str, str], now: float, others: Sequence[Section] = ()) -> Page:
    """`found` is a page of :func:`gateway.observe.sessions.page`, `asked` the query; `now`: seconds since the epoch.
    `others`: what to say of sessions that are at other gateways."""
    after = found["next"]
    kept = {"prefix": asked.get("prefix", ""), "state": asked.get("state", "")}
    table = Table(
        f"{len(found['sessions'])} of {found['total']} sessions, by client id",
        _HEADINGS,
        _rows(found["sessions"], now),
        "no session matches",
        after is not None,
        "" if after is None else link(PATH, **kept, after=after),
    )
    choices = (("", "all"), ("connected", "connected"), ("offline", "offline"))
    search = (
        Field("prefix", "client id begins with", kept["prefix"]),
        Field("state", "state", kept["state"], choices),
    )
    return Page(PATH, "Clients", (Section("", tables=[table]), *others), search=search)


def queues(longest: Sequence[Mapping[str, Any]], slow: Sequence[Mapping[str, Any]], now: float) -> Page:
    """`longest`: sessions with most bytes waiting; `slow`: connected ones whose client does not keep up."""
    sections = (
        Section(
            "Slow consumers",
            "Connected clients that messages wait for: their window is full, or their connection takes no more.",
            tables=[Table("Slow consumers", _HEADINGS, _rows(slow, now), "none")],
        ),
        Section(
            "Largest queues",
            "Sessions, connected or not, with most bytes waiting.",
            tables=[Table("Largest queues", _HEADINGS, _rows(longest, now), "none")],
        ),
    )
    return Page(QUEUES_PATH, "Queues", sections)


def client(found: Mapping[str, Any], actions: Sequence[Action], now: float, notice: str = "") -> Page:
    """`found` is a session of :func:`gateway.observe.sessions.detail`."""
    queue, windows = found["queue"], found["windows"]
    since = found["since_ms"]
    facts: list[tuple[str, Cell]] = [
        ("state", _state(found)),
        ("since", age_cell(since, now) if since else Cell(UNKNOWN)),
        ("user", name(found["user"])),
        ("peer", name(found["peer"])),
        ("protocol", name(found["protocol"])),
        ("shard, epoch", Cell(f"{found['shard']}, {found['epoch']}")),
        ("session started", age_cell(found["begun_ms"], now)),
        ("session expires", Cell(f"{age(found['expiry_s'])} after its connection ends")),
        ("messages", Cell("what it has sent", href=link(messages.PATH, client=found["client"]))),
        ("will", Cell("yes" if found["has_will"] else "no")),
        (
            "queue",
            Cell(f"{queue['in_memory']} in memory, {queue['in_spool']} in the spool, {bytes_words(queue['bytes'])}"),
        ),
        ("unacknowledged, to the client", Cell(f"{windows['to_client']} of {windows['to_client_maximum']}")),
        ("await PUBCOMP", number(windows["to_client_released"])._replace(kind="text")),
        ("from the client, on their way to Kafka", Cell(str(windows["from_client_on_way"]))),
        ("await PUBREL", Cell(str(windows["from_client_received"]))),
    ]
    table = Table("Session", ("what", "value"), [(Cell(label), value) for label, value in facts], "")
    subscriptions = found["subscription_list"]
    shown = sorted(subscriptions, key=lambda one: one["filter"])[:ROWS]
    rows = [
        (
            name(one["filter"]),
            number(one["qos"]),
            Cell("yes" if one["no_local"] else "no"),
            Cell("yes" if one["retain_as_published"] else "no"),
            number(one["retain_handling"]),
            number(one["identifier"] or None),
        )
        for one in shown
    ]
    headings = ("filter", "QoS", "no local", "retain as published", "retain handling", "identifier")
    of = f"{len(shown)} of {len(subscriptions)} subscriptions"
    sections = (
        Section("", tables=[table, Table(of, headings, rows, "none")]),
        _journeys(found["client"]),
    )
    return Page(PATH, f"Client {name(found['client']).text}", sections, actions=actions, notice=notice)


def _journeys(client_id: str) -> Section:
    where = f"source = '{client_id}'" if _PLAIN_ID.fullmatch(client_id) else "origin <> 'platform'"
    sent = f"SELECT id, destination, qos, accepted FROM messages WHERE {where} ORDER BY accepted DESC LIMIT 5"
    return Section(
        "Messages",
        "This gateway keeps no message that is finished, and has no tables: it asks the ledger what the client has "
        "sent. Where the ledger can be read, these commands show that, and a message's journey and why it went where "
        "it went.",
        code=(
            f'waystation query "{sent}"',
            "waystation journey MESSAGE-ID",
            "waystation explain MESSAGE-ID",
        ),
    )


def _rows(sessions: Sequence[Mapping[str, Any]], now: float) -> list[tuple[Cell, ...]]:
    return [_row(one, now) for one in sessions[:ROWS]]


def _row(one: Mapping[str, Any], now: float) -> tuple[Cell, ...]:
    return (
        name(one["client"], link(CLIENT_PATH, client=one["client"])),
        _state(one),
        age_cell(one["since_ms"], now),
        name(one["user"]),
        name(one["peer"]),
        name(one["protocol"]),
        number(one["subscriptions"]),
        number(one["queued_messages"]),
        Cell(bytes_words(one["queued_bytes"]), "number"),
        number(one["unacknowledged"]),
    )


def _state(one: Mapping[str, Any]) -> Cell:
    return Cell(one["state"], "good" if one["state"] == "connected" else "text")
