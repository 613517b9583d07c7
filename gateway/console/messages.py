"""Messages: the newest ones by topic and sender, and what happened to one of them, as the ledger knows it."""

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from gateway.console.parts import CUT, UNKNOWN, Cell, Field, Page, Section, Table, link, name
from gateway.console.text import age_cell, number, seconds_words
from schemas.journey_api import Journey, JourneyStep, MessagesFound
from schemas.visible import visible

PATH = "/console/messages"

_PLAIN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")
"""Message ids that are written into commands to copy."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DETAIL_LENGTH = 200
_MINUS = "\u2212"

_LEAD = (
    "From the ledger, a few seconds after the events. Gateways time what they accept and deliver, the broker times the "
    "rest: steps a few milliseconds apart may be out of order."
)


class NoAnswer(NamedTuple):
    """Why the ledger tells nothing; `by_ledger`: it said so itself."""

    sentence: str
    by_ledger: bool = False


def newest(topic: str, client: str, answer: MessagesFound | NoAnswer, now: float) -> Page:
    """The newest messages on a topic, of a client, of both, or else of all clients; `now`: seconds since the epoch."""
    if isinstance(answer, NoAnswer):
        return Page(PATH, "Messages", (_unanswered(answer),), search=_search("", topic, client))
    rows = [
        (
            name(one.id, link(PATH, id=one.id)),
            age_cell(one.accepted_us // 1000, now),
            name(one.source),
            name(one.destination),
            number(one.qos),
        )
        for one in answer.messages
    ]
    since = f", accepted since {name(answer.since).text}" if answer.since else ""
    empty = (
        "the ledger has none: give the whole topic, without wildcards, and the whole client id; if a message was just "
        "published, try again in a few seconds"
    )
    table = Table(f"The newest messages{since}", ("message id", "age", "from", "to", "QoS"), rows, empty)
    section = Section("", "From the ledger. An id leads to everything that happened to the message.", tables=[table])
    return Page(PATH, "Messages", (section,), search=_search("", topic, client))


def journey(message_id: str, answer: Journey | NoAnswer) -> Page:
    """Everything that happened to one message."""
    commands = Section(
        "Commands",
        "Where the ledger can be read, these show the same, and why the message went where it went.",
        code=journey_commands(message_id),
    )
    title = f"Message {name(message_id).text}"
    if isinstance(answer, NoAnswer):
        return Page(PATH, title, (_unanswered(answer), commands), search=_search(message_id, "", ""))
    before = [None, *answer.steps]
    rows = [_step(step, earlier) for step, earlier in zip(answer.steps, before, strict=False)]
    headings = ("time (UTC)", "after the step before", "step", "who", "detail")
    notes = [f"Only the first {len(rows)} steps are shown."] if answer.is_cut else []
    section = Section("", _LEAD, tables=[Table("Journey", headings, rows, "no step")], notes=notes)
    return Page(PATH, title, (section, commands), search=_search("", "", ""))


def journey_commands(message_id: str) -> tuple[str, str]:
    """Commands to copy; an id that a shell could read as something else is not written into them."""
    known = message_id if _PLAIN_ID.fullmatch(message_id) else "MESSAGE-ID"
    return f"waystation journey {known}", f"waystation explain {known}"


def _search(message_id: str, topic: str, client: str) -> tuple[Field, ...]:
    return (
        Field("id", "message id", message_id),
        Field("topic", "or topic", topic),
        Field("client", "from client", client),
    )


def _unanswered(answer: NoAnswer) -> Section:
    return Section("", notes=[visible(answer.sentence)])


def _step(step: JourneyStep, before: JourneyStep | None) -> tuple[Cell, ...]:
    return (
        Cell(_time(step.at_us), "time"),
        Cell("", "number") if before is None else Cell(_after(step.at_us - before.at_us), "number"),
        name(step.step)._replace(kind="text"),
        name(step.who),
        _detail(step.detail),
    )


def _detail(text: str) -> Cell:
    """Longer than names are: it is what the page is for."""
    found = name(text)
    shown = found.title or found.text
    return Cell(shown) if len(shown) <= _DETAIL_LENGTH else Cell(shown[:_DETAIL_LENGTH] + CUT, title=shown)


def _after(between_us: int) -> str:
    """Negative if the two steps were timed by different clocks."""
    words = seconds_words(abs(between_us) / 1_000_000)
    return f"{_MINUS}{words}" if between_us < 0 else words


def _time(at_us: int) -> str:
    """To the millisecond; a dash for what no calendar has."""
    try:
        at = _EPOCH + timedelta(microseconds=at_us)
    except OverflowError:
        return UNKNOWN
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}"
