"""What the ledger answers about messages over HTTP, on its metrics port; gateways' consoles ask it.

| request | answer |
|---|---|
| `GET /journey?id=` | :class:`Journey`; 404 with :class:`JourneyRefusal` if the ledger has no such message |
| `GET /journeys?topic=&client=` | :class:`MessagesFound`: the newest messages, of a topic, a sender, both, or all |

Any other status than 200 has a :class:`JourneyRefusal`: 400 for wrong parameters, 401 and 403 as
:mod:`schemas.operator_access` says, 503 if the tables cannot be read now or not in time. An application that serves
neither path answers 404 without one.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

JOURNEY_PATH: Final = "/journey"
JOURNEYS_PATH: Final = "/journeys"
STEPS_MOST: Final = 200
"""Steps of a journey in an answer."""
MESSAGES_MOST: Final = 20
TEXT_CHARACTERS: Final = 1_000
"""Longer texts of an answer are cut."""
ID_CHARACTERS: Final = 200
"""No message has a longer id."""
LARGEST_ANSWER: Final = 3_000_000
"""Bytes of the longest answer: its texts have at most 6 bytes a character in JSON."""

Text = Annotated[str, Meta(max_length=TEXT_CHARACTERS)]


class JourneyStep(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the view `message_journey`. `at_us`: µs since the epoch, by the clock of `who` or of the broker."""

    at_us: int
    step: Text
    who: Text
    detail: Text


class Journey(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a message, in order; `is_cut`: it has more steps than these."""

    id: Text
    steps: Annotated[tuple[JourneyStep, ...], Meta(max_length=STEPS_MOST)]
    is_cut: bool = False


class MessageFound(msgspec.Struct, frozen=True, kw_only=True):
    """`accepted_us`: when the source gateway accepted it, µs since the epoch, by its clock."""

    id: Text
    accepted_us: int
    source: Text
    destination: Text
    qos: int


class MessagesFound(msgspec.Struct, frozen=True, kw_only=True):
    """The newest first. `since` is the UTC date (ISO 8601) that was looked from; "" if the whole ledger was."""

    messages: Annotated[tuple[MessageFound, ...], Meta(max_length=MESSAGES_MOST)]
    since: Text = ""


class JourneyRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """`error` is a sentence for people."""

    error: Text
