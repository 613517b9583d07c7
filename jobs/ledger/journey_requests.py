"""Answers over HTTP what happened to a message, and which messages are the newest (:mod:`schemas.journey_api`).

Days are the tables' partitions, so only those are read in which the answer can be: an id of version 7 has its message's
time; the newest messages are looked for among those of today and yesterday first.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import structlog
from aiohttp import web

from jobs.errors import QueryError, TableUnreadable
from jobs.ledger.bounded_reading import BoundedReading, Open
from jobs.query.journeys import first_steps, has_begun, newest_messages, no_message
from jobs.query.ledger_reader import Dates
from schemas.journey_api import (
    ID_CHARACTERS,
    JOURNEY_PATH,
    JOURNEYS_PATH,
    MESSAGES_MOST,
    STEPS_MOST,
    TEXT_CHARACTERS,
    Journey,
    JourneyRefusal,
    JourneyStep,
    MessageFound,
    MessagesFound,
)
from schemas.operator_access import JOURNEYS, Refusal, TokenError, read_token, refusal

EVER = Dates(date(1970, 1, 1))
SLACK = timedelta(days=1)
"""For clocks of gateways and devices that are not the broker's, and for midnight."""

log = structlog.get_logger(__name__)


class JourneyRequests:
    """The handlers. `token_file` is "" if no token is required; `today` gives the UTC date. Raises TokenError if the
    file holds no token."""

    def __init__(self, reading: BoundedReading, token_file: str, today: Callable[[], date]) -> None:
        self._reading = reading
        self._token_file = token_file
        self._today = today
        self._said_at = float("-inf")
        if token_file:
            read_token(JOURNEYS.setting, token_file)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(JOURNEY_PATH, self._guarded(self._journey)),
            web.get(JOURNEYS_PATH, self._guarded(self._journeys)),
        ]

    def _guarded(
        self, handler: Callable[[web.Request], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Lets in who may ask, and turns errors into sentences."""

        async def guarded(request: web.Request) -> web.Response:
            refused = self._check(request)
            if refused is not None:
                return _refused(refused.status, refused.sentence)
            try:
                return await handler(request)
            except TableUnreadable as error:
                log.warning("the tables cannot be read for a journey", error=str(error))
                return _refused(503, "the ledger cannot read its tables; its log says why")
            except QueryError as error:
                return _refused(503, str(error))

        return guarded

    def _check(self, request: web.Request) -> Refusal | None:
        """Why the request is refused, or None. Logs at most one refusal a second."""
        try:
            token = read_token(JOURNEYS.setting, self._token_file) if self._token_file else None
        except TokenError as error:
            log.error("the search for journeys refuses all requests", reason=str(error))
            return Refusal(503, "the ledger cannot read the token of its search for journeys; its log says why")
        refused = refusal(JOURNEYS, token, request.headers, request.remote or "")
        now = asyncio.get_running_loop().time()
        if refused is not None and now - self._said_at >= 1:
            self._said_at = now
            log.warning("request for a journey refused", peer=request.remote, status=refused.status)
        return refused

    async def _journey(self, request: web.Request) -> web.Response:
        message_id = request.query.get("id", "")
        if set(request.query) != {"id"} or not message_id:
            return _refused(400, f"ask for {JOURNEY_PATH}?id=<message id>")
        if len(message_id) > ID_CHARACTERS:
            return _refused(404, f"no message has an id of more than {ID_CHARACTERS} characters")

        def search(tables: Open) -> list[tuple[int, str, str, str]]:
            found: list[tuple[int, str, str, str]] = []
            for dates in _dates_of(message_id):
                with tables(dates) as reader:
                    found = first_steps(reader, message_id, STEPS_MOST + 1)
                if any(has_begun(step) for _, step, _, _ in found):
                    break
            return found

        found = await self._reading.read(search)
        if not found:
            return _refused(404, str(no_message(message_id)))
        steps = [
            JourneyStep(at_us=at, step=_cut(step), who=_cut(who), detail=_cut(detail))
            for at, step, who, detail in found[:STEPS_MOST]
        ]
        return _answer(Journey(id=message_id, steps=tuple(steps), is_cut=len(found) > STEPS_MOST))

    async def _journeys(self, request: web.Request) -> web.Response:
        if set(request.query) - {"topic", "client"}:
            return _refused(400, f"ask for {JOURNEYS_PATH}?topic=<topic>, ?client=<client id>, or both")
        topic, client = request.query.get("topic", ""), request.query.get("client", "")
        recent = Dates(self._today() - SLACK)

        def search(tables: Open) -> MessagesFound:
            for dates in (recent, EVER):
                with tables(dates) as reader:
                    if found := newest_messages(reader, MESSAGES_MOST, topic, client):
                        return _found(found, str(dates.first) if dates is recent else "")
            return _found([], "")

        return _answer(await self._reading.read(search))


def _dates_of(message_id: str) -> list[Dates]:
    """Where to look for a message, one after the other, until its beginning is found: an id from a clock that is ahead
    leaves out the first days."""
    try:
        known = UUID(message_id)
        if known.version != 7:
            return [EVER]
        made = datetime.fromtimestamp((known.int >> 80) / 1000, UTC).date()
        return [Dates(made - SLACK), EVER]
    except (ValueError, OverflowError, OSError):  # no UUID, or a time that no calendar has
        return [EVER]


def _found(rows: list[tuple[str, int, str, str, int]], since: str) -> MessagesFound:
    messages = [
        MessageFound(
            id=_cut(message_id), accepted_us=accepted, source=_cut(source), destination=_cut(destination), qos=qos
        )
        for message_id, accepted, source, destination, qos in rows
    ]
    return MessagesFound(messages=tuple(messages), since=since)


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS else text[: TEXT_CHARACTERS - 1] + "…"


def _answer(content: Any, status: int = 200) -> web.Response:
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(
        body=msgspec.json.encode(content), status=status, headers=headers, content_type="application/json"
    )


def _refused(status: int, sentence: str) -> web.Response:
    return _answer(JourneyRefusal(error=_cut(sentence)), status)
