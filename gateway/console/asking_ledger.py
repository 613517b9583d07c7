"""Asks the ledger what happened to messages when a page is requested: one request at a time, within TIMEOUT_S.

What it sends is bounded in size, and checked. An answer is reused for FRESH_S: an open page asks again and again, and
the ledger has no news more often. The token goes only to the places where the ledger may be.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import aiohttp
import msgspec
import structlog

from gateway.console.applications import Place
from gateway.console.messages import NoAnswer
from schemas.journey_api import (
    ID_CHARACTERS,
    JOURNEY_PATH,
    JOURNEYS_PATH,
    LARGEST_ANSWER,
    Journey,
    JourneyRefusal,
    MessagesFound,
)
from schemas.operator_access import JOURNEYS, TokenError, bearer, read_token
from schemas.settings import LedgerSettings
from schemas.undecodable import UNDECODABLE

TIMEOUT_S = 9.0
"""Longer than the ledger takes at most, so that it says why; shorter than an open page waits."""
CONNECT_S = 2.0
FRESH_S = 5.0
KEPT = 4
"""Answers that are kept."""
_FAULT_CHARACTERS = 300

R = TypeVar("R", Journey, MessagesFound)

log = structlog.get_logger(__name__)


class LedgerQuestions:
    """`places`: where the ledger may be; whichever serves journeys is it. `now` gives monotonic seconds."""

    def __init__(self, places: Sequence[Place], ledger: LedgerSettings, now: Callable[[], float]) -> None:
        self._places = places
        self._is_on = ledger.journeys
        self._token_file = ledger.token_file
        self._now = now
        self._asking = asyncio.Lock()
        self._kept: dict[tuple[str, ...], tuple[Any, float]] = {}

    async def journey(self, message_id: str) -> Journey | NoAnswer:
        if len(message_id) > ID_CHARACTERS:
            return NoAnswer(f"No message has an id of more than {ID_CHARACTERS} characters.")
        return await self._ask(JOURNEY_PATH, {"id": message_id}, Journey)

    async def newest(self, topic: str, client: str) -> MessagesFound | NoAnswer:
        given = {key: value for key, value in (("topic", topic), ("client", client)) if value}
        return await self._ask(JOURNEYS_PATH, given, MessagesFound)

    async def _ask(self, path: str, query: Mapping[str, str], kind: type[R]) -> R | NoAnswer:
        if not self._is_on:
            return NoAnswer("The ledger answers no questions about messages: ledger.journeys = false.")
        try:
            headers = {"Authorization": bearer(self._token())} if self._token_file else {}
        except TokenError as error:
            log.error("the ledger cannot be asked about messages", reason=str(error))
            return NoAnswer("The gateway cannot read the token for the ledger, ledger.token_file; its log says why.")
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S, sock_connect=CONNECT_S)
        try:
            async with asyncio.timeout(TIMEOUT_S), self._asking:
                question = (path, *(text for item in query.items() for text in item))
                kept, at = self._kept.get(question, (None, 0.0))
                if isinstance(kept, kind) and self._now() - at < FRESH_S:
                    return kept
                async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
                    asked = (_answer(session, place, path, query, kind) for place in self._places)
                    best = _best(await asyncio.gather(*asked))
                self._keep(question, best)
                return best
        except TimeoutError:
            return NoAnswer(f"The ledger did not answer within {TIMEOUT_S:g} s.")

    def _keep(self, question: tuple[str, ...], answer: Any) -> None:
        self._kept.pop(question, None)
        if not isinstance(answer, NoAnswer):
            self._kept[question] = (answer, self._now())
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]

    def _token(self) -> bytes:
        return read_token(JOURNEYS.setting, self._token_file)


def _best(answers: Sequence[R | NoAnswer]) -> R | NoAnswer:
    """An answer, or else what the ledger itself said, or else why it cannot be asked."""
    for answer in answers:
        if not isinstance(answer, NoAnswer):
            return answer
    refused = [answer for answer in answers if isinstance(answer, NoAnswer)]
    if not refused:
        return NoAnswer("It is not configured where the ledger is.")
    return next((answer for answer in refused if answer.by_ledger), refused[0])


async def _answer(
    session: aiohttp.ClientSession, place: Place, path: str, query: Mapping[str, str], kind: type[R]
) -> R | NoAnswer:
    if not place.address:
        return NoAnswer(
            "The port of the ledger is any free one (0), which only the ledger knows: configure ledger.metrics_port."
        )
    url = f"http://{place.address}{path}"
    try:
        async with session.get(url, params=query, allow_redirects=False) as response:
            status, body = response.status, await _body(response)
        if status == 200:
            return await asyncio.to_thread(msgspec.json.decode, body, type=kind)
        return _refused(status, body, place)
    except TimeoutError:
        return NoAnswer(f"The ledger at {place.address} did not answer in time.")
    except aiohttp.ClientConnectorError as error:
        number = error.os_error.errno
        reason = os.strerror(number) if number else str(error.os_error)
        return NoAnswer(f"The ledger cannot be reached at {place.address}: {reason}.")
    except (aiohttp.ClientError, *UNDECODABLE, ValueError, OSError) as error:
        return NoAnswer(f"The answer from {place.address} is not understood: {str(error)[:_FAULT_CHARACTERS]}")


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """Raises ValueError if it is too large."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > LARGEST_ANSWER:
            raise ValueError(f"it is longer than {LARGEST_ANSWER} bytes")
    return bytes(body)


def _refused(status: int, body: bytes, place: Place) -> NoAnswer:
    match status:
        case 401:
            return NoAnswer(
                f"The ledger at {place.address} does not accept this gateway's token: ledger.token_file must name a "
                "file with the same content there and here.",
                by_ledger=True,
            )
        case 403:
            return NoAnswer(
                f"The ledger at {place.address} answers only programs on its own machine: set ledger.token_file there "
                "and here.",
                by_ledger=True,
            )
    try:
        said = msgspec.json.decode(body, type=JourneyRefusal).error
    except UNDECODABLE:
        if status == 404:
            return NoAnswer(
                f"The application at {place.address} answers no questions about messages: it is no ledger, an earlier "
                "one, or has ledger.journeys = false."
            )
        return NoAnswer(f"The application at {place.address} answered {status}.")
    return NoAnswer(f"{said[:1].upper()}{said[1:].rstrip('.')}.", by_ledger=True)
