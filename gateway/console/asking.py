"""Asks routers and ledger for their readiness and metrics when a page is requested, within a short time.

What they send is bounded in size and time, and an answer is reused for a while: an open page asks again and again.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from gateway.console.applications import SAMPLES, Answer, Place
from schemas.undecodable import UNDECODABLE

TIMEOUT_S = 2.0
FRESH_S = 2.0
LARGEST_ANSWER = 1_000_000
_FAULT_CHARACTERS = 300


class _Part(msgspec.Struct):
    ready: bool
    detail: str = ""


class _Report(msgspec.Struct):
    """The answer of `/readyz` (:func:`schemas.readiness.readiness_report`)."""

    parts: dict[str, _Part]


class Applications:
    """The applications at `places`; `now` gives monotonic seconds."""

    def __init__(self, places: Sequence[Place], now: Callable[[], float]) -> None:
        self._places = places
        self._now = now
        self._answers: list[Answer] = []
        self._asked_at = float("-inf")
        self._lock = asyncio.Lock()

    async def ask(self) -> list[tuple[Place, Answer, float]]:
        """Each with its answer, and its age in seconds."""
        async with self._lock:
            if self._now() - self._asked_at >= FRESH_S:
                timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
                async with aiohttp.ClientSession(timeout=timeout) as session:
                    answers = await asyncio.gather(*(_ask(session, place) for place in self._places))
                self._answers, self._asked_at = list(answers), self._now()
            age = self._now() - self._asked_at
            return [(place, answer, age) for place, answer in zip(self._places, self._answers, strict=True)]


async def _ask(session: aiohttp.ClientSession, place: Place) -> Answer:
    if not place.address:
        return Answer({}, {}, "its port is any free one (0), which only the application knows: configure one")
    try:
        report = msgspec.json.decode(await _get(session, place, "/readyz", {}), type=_Report)
        text = await _get(session, place, "/metrics", [("name[]", sample) for sample in SAMPLES])
        samples = await asyncio.to_thread(_samples, text)
    except TimeoutError:
        return Answer({}, {}, f"it did not answer within {TIMEOUT_S:g} s")
    except aiohttp.ClientConnectorError as error:
        number = error.os_error.errno
        return Answer({}, {}, f"cannot connect: {os.strerror(number) if number else error.os_error}")
    except (aiohttp.ClientError, *UNDECODABLE, ValueError, OSError) as error:
        return Answer({}, {}, str(error)[:_FAULT_CHARACTERS])
    faults = {part: "" if found.ready else found.detail or "not ready" for part, found in report.parts.items()}
    return Answer(faults, samples)


async def _get(session: aiohttp.ClientSession, place: Place, path: str, query: Any) -> bytes:
    """The body; raises ValueError if it is too large. `/readyz` answers 503 while a part is not ready."""
    url = f"http://{place.address}{path}"
    async with session.get(url, params=query, allow_redirects=False) as answer:
        if answer.status not in (200, 503):
            raise ValueError(f"{path} answered {answer.status}")
        body = b""
        async for part in answer.content.iter_any():
            body += part
            if len(body) > LARGEST_ANSWER:
                raise ValueError(f"{path} answered more than {LARGEST_ANSWER} bytes")
        return body


def _samples(text: bytes) -> Mapping[tuple[str, str], float]:
    """Of several samples of a query, such as one a topic, the largest. Some of a router's query name the router."""
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            router = sample.labels.get("router", "")
            query = sample.labels.get("query", "") or (router and f"router-{router}")
            if query and sample.name in SAMPLES and isfinite(sample.value):
                found[sample.name, query] = max(sample.value, found.get((sample.name, query), sample.value))
    return found
