"""Answers to refused requests: problem details (RFC 9457), and the HTTP status for each MQTT reason code."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

import msgspec
from aiohttp import web

from gateway.errors import GatewayError
from gateway.host.authenticator import NotAdmitted
from mqtt.codes import ReasonCode

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
AGAIN: Final = "asking again is safe only with an Idempotency-Key"
"""What to do after a request that may have been sent."""
CHALLENGES: Final = ('Basic realm="waystation", charset="UTF-8"', 'Bearer realm="waystation"')


STATUSES: Final = (
    *(200, 202, 204),
    *(400, 401, 403, 404, 405, 408, 409, 413, 415, 417, 422, 429, 431),
    *(500, 502, 503, 504, 505),
)
"""Every status that a request may be answered with."""

_TITLES: Final[Mapping[int, str]] = MappingProxyType({413: "Content Too Large", 422: "Unprocessable Content"})
"""Phrases of RFC 9110, 15.5, for which Python before 3.13 has those of earlier standards."""


class Problem(GatewayError):
    """The request is refused. `reason` is a word for programs, `detail` a sentence for people, `allow` the methods for
    a 405; `headers` are further ones. With `close` the connection ends and the rest of the request is not read.
    `filters` are the topic filters that are refused, if the request would be granted without them."""

    def __init__(
        self,
        status: int,
        reason: str,
        detail: str,
        *,
        allow: str = "",
        close: bool = False,
        headers: Mapping[str, str] = NO_HEADERS,
        filters: Sequence[str] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.detail = detail
        self.allow = allow
        self.close = close
        self.headers = headers
        self.filters = filters


def bad_request(reason: str, detail: str) -> Problem:
    return Problem(400, reason, detail)


_REFUSALS: Final[Mapping[ReasonCode, tuple[int, str]]] = MappingProxyType(
    {
        ReasonCode.UNSPECIFIED_ERROR: (503, "Kafka refused the message; the gateway's log says why"),
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: (503, "Kafka refused what this needs; the gateway's log says why"),
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: (403, "this client id is not allowed"),
        ReasonCode.BAD_USER_NAME_OR_PASSWORD: (401, "the user name, password or token is wrong"),
        ReasonCode.NOT_AUTHORIZED: (403, "this client is not allowed to do that"),
        ReasonCode.SERVER_UNAVAILABLE: (503, "the gateway cannot accept this now; try again later"),
        ReasonCode.SERVER_BUSY: (503, "the gateway is busy; try again later"),
        ReasonCode.USE_ANOTHER_SERVER: (503, "another gateway has this client's session, or will soon; try again"),
        ReasonCode.SERVER_SHUTTING_DOWN: (503, "the gateway is being stopped; try again later"),
        ReasonCode.BANNED: (403, "this client is banned"),
        ReasonCode.BAD_AUTHENTICATION_METHOD: (401, "this authentication method is not supported"),
        ReasonCode.TOPIC_FILTER_INVALID: (400, "the topic filter is not valid"),
        ReasonCode.TOPIC_NAME_INVALID: (400, "the destination is not allowed"),
        ReasonCode.PACKET_TOO_LARGE: (413, "the message is larger than allowed"),
        ReasonCode.MESSAGE_RATE_TOO_HIGH: (429, "too many messages in a short time; try again later"),
        ReasonCode.QUOTA_EXCEEDED: (
            429,
            "a limit is reached: of this client, of retained messages, of subscriptions, or of messages in flight to "
            "Kafka",
        ),
        ReasonCode.ADMINISTRATIVE_ACTION: (403, "the message is blocked"),
        ReasonCode.PAYLOAD_FORMAT_INVALID: (
            400,
            "the payload does not match its declared format, or the user property conversation is not a valid id",
        ),
        ReasonCode.CONNECTION_RATE_EXCEEDED: (429, "too many requests in a short time; try again later"),
    }
)


def too_many_in_flight() -> Problem:
    """:meth:`gateway.host.host_server.HostServer.is_flooded`"""
    return Problem(503, "too_many_in_flight", "too many messages are in flight to Kafka; nothing was stored")


def refusal(code: ReasonCode, filters: Sequence[str] = ()) -> Problem:
    """The problem for an MQTT reason code; `filters` as in :class:`Problem`, none if it may be granted soon (5xx)."""
    status, detail = _REFUSALS.get(code, (403, "the request is refused"))
    return Problem(status, code.name.lower(), detail, filters=filters if status < 500 else ())


def refused_filters(filters: Sequence[str], codes: Sequence[ReasonCode]) -> Problem | None:
    """The problem of a request for these filters, which has the first reason of them; None if all are granted."""
    refused = [(f, code) for f, code in zip(filters, codes, strict=True) if code >= ReasonCode.UNSPECIFIED_ERROR]
    return refusal(refused[0][1], [one for one, _ in refused]) if refused else None


def not_admitted(error: NotAdmitted, has_credentials: bool) -> Problem:
    """A client that showed no credentials is asked for them."""
    problem = refusal(error.reason)
    if problem.status == 403 and error.reason == ReasonCode.NOT_AUTHORIZED and not has_credentials:
        return Problem(401, problem.reason, "credentials are required: send Authorization: Basic or Bearer")
    return problem


def problem_response(problem: Problem) -> web.Response:
    title = _TITLES.get(problem.status, HTTPStatus(problem.status).phrase)
    content = {
        "type": "about:blank",
        "title": title,
        "status": problem.status,
        "detail": problem.detail,
        "reason": problem.reason,
    }
    if problem.filters:
        content["filters"] = problem.filters
    body = msgspec.json.encode(content)
    response = web.Response(status=problem.status, reason=title, body=body, content_type=MEDIA_TYPE)
    if problem.status == 401:
        for challenge in CHALLENGES:
            response.headers.add("WWW-Authenticate", challenge)
    if problem.status in (429, 503):
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    if problem.allow:
        response.headers["Allow"] = problem.allow
    response.headers.update(problem.headers)
    if problem.close:
        response.force_close()
    return response
