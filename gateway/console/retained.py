"""Retained messages: a list by the beginning of their topics, and one of them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gateway.console import messages
from gateway.console.parts import Cell, Field, Page, Section, Table, link, name
from gateway.console.text import age_cell, bytes_words, number, payload
from gateway.shard.messages import Message
from schemas.settings import GatewaySettings

PATH = "/console/topics"
TOPIC_PATH = "/console/topic"

PREVIEW_BYTES = 64
VALUE_BYTES = 4_096

_HIDDEN = (
    "Values are shown only to those who show the admin token (gateway.admin_token_file), because this gateway does not "
    "let everybody read every topic."
)
_RATES = "Rates by topic are not counted by the gateway: the table topic_traffic of the ledger has them."


class RetainedFacts(NamedTuple):
    """`total` retained messages of `total_bytes`, of which `found` are shown; `more`: whether others follow."""

    total: int
    total_bytes: int
    found: Sequence[Message]
    more: bool


def values_are_public(gateway: GatewaySettings) -> bool:
    """Whether any client can read every retained message, so that the page gives nothing away."""
    methods = gateway.authentication.methods
    return (not methods or "anonymous" in methods) and not gateway.authorization.file


def page(facts: RetainedFacts, asked: Mapping[str, str], now: float, shows_values: bool) -> Page:
    prefix = asked.get("prefix", "")
    rows = [_row(message, now, shows_values) for message in facts.found]
    headings = ("topic", "size", "age", "QoS", "from", *(("value",) if shows_values else ()))
    table = Table(
        f"{len(rows)} of {facts.total} retained messages ({bytes_words(facts.total_bytes)} in all), by topic",
        headings,
        rows,
        "no retained message matches",
        facts.more,
        link(PATH, prefix=prefix, after=facts.found[-1].topic) if facts.more else "",
    )
    notes = [_RATES] if shows_values else [_HIDDEN, _RATES]
    sections = (Section("", tables=[table], notes=notes),)
    return Page(PATH, "Topics", sections, search=(Field("prefix", "topic begins with", prefix),))


def topic(message: Message, now: float, shows_values: bool) -> Page:
    """One retained message."""
    kind, shown = payload(message.payload, VALUE_BYTES)
    facts = [
        (Cell("size"), Cell(bytes_words(len(message.payload)))),
        (Cell("age"), age_cell(message.appended, now)),
        (Cell("QoS"), Cell(str(message.qos))),
        (Cell("from"), name(message.source)),
        (Cell("message id"), name(message.id, link(messages.PATH, id=message.id))),
        (Cell("on this topic"), Cell("the newest messages", href=link(messages.PATH, topic=message.topic))),
    ]
    value = Section(f"Value, {kind}", code=(shown,)) if shows_values else Section("Value", notes=(_HIDDEN,))
    sections = (
        Section("", tables=[Table("Retained message", ("what", "value"), facts, "")]),
        value,
        Section(
            "Journey",
            "The message's id leads to its journey. Where the ledger can be read, these commands show it, and why the "
            "message went where it went.",
            code=messages.journey_commands(message.id),
        ),
    )
    return Page(PATH, f"Topic {name(message.topic).text}", sections)


def _row(message: Message, now: float, shows_values: bool) -> tuple[Cell, ...]:
    cells = (
        name(message.topic, link(TOPIC_PATH, topic=message.topic)),
        Cell(bytes_words(len(message.payload)), "number"),
        age_cell(message.appended, now),
        number(message.qos),
        name(message.source),
    )
    return (*cells, _preview(message.payload)) if shows_values else cells


def _preview(data: bytes) -> Cell:
    kind, shown = payload(data, PREVIEW_BYTES)
    return Cell(f"{shown} (hex)" if kind == "hex" else shown, "name")
