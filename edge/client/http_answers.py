"""Requests to a gateway over HTTP, and what its answers mean; no I/O (gateway/http/openapi.json; RFC 9110, RFC 9457).

A message counts as acknowledged only by an answer that nobody but a gateway gives: 202, JSON, and the message id that
follows from the client's name and the key of this very message. The login page of a network, a proxy's error page or
another service does not pass; the message is then sent again on a later connection.
"""

import base64
import math
import re
from collections.abc import Collection, Iterable
from typing import Annotated, Final, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from edge.client.event_stream import reason_named
from edge.errors import AnswerFault, ConnectRefused, MqttClientError, SubscribeRefused, Unreachable
from mqtt.client_events import Closed, EndedBy
from mqtt.codes import ReasonCode
from mqtt.errors import LocalProtocolError
from mqtt.packets import Publish
from schemas.undecodable import UNDECODABLE

ANSWER_BYTES_MAX: Final = 64 << 10
RETRY_AFTER_MAX_S: Final = 60.0
CLIENT_ID_HEADER: Final = "X-Client-Id"
PROBLEM: Final = "application/problem+json"
_CLIENT_ID: Final = re.compile("[!-~]{1,4000}")
_TEXT_MAX: Final = 300  # of what a stranger says, in an error
_FORM: Final = "application/x-www-form-urlencoded"  # for a gateway, no content type (curl sends it with any body)
_LOWEST_FAILURE: Final = ReasonCode.UNSPECIFIED_ERROR
_REFUSED: Final = {
    400: ReasonCode.UNSPECIFIED_ERROR,
    403: ReasonCode.NOT_AUTHORIZED,
    413: ReasonCode.PACKET_TOO_LARGE,
    415: ReasonCode.UNSPECIFIED_ERROR,
    422: ReasonCode.UNSPECIFIED_ERROR,
    431: ReasonCode.PACKET_TOO_LARGE,
}
"""Statuses by which a gateway refuses a message for good."""

_OF_THE_CLIENT: Final = frozenset({"banned", "client_identifier_not_valid"})
"""Refusals of the client, not of the message."""


B = TypeVar("B")


class Answer(NamedTuple):
    """`content_type` without parameters; `retry_after` and `client_id` are those header fields, "" if missing."""

    status: int
    content_type: str
    retry_after: str
    client_id: str
    body: bytes


class Stored(NamedTuple):
    """Kafka has the message."""


class Refused(NamedTuple):
    """The gateway will never accept the message."""

    reason: ReasonCode
    text: str


class TryAgain(NamedTuple):
    """The gateway does not accept the message now. `is_stored_nowhere`: as the gateway says."""

    after_s: float | None
    reason: ReasonCode
    text: str
    is_stored_nowhere: bool


Outcome: TypeAlias = Stored | Refused | TryAgain


class _StoredBody(msgspec.Struct):
    id: str


class _Problem(msgspec.Struct):
    reason: Annotated[str, msgspec.Meta(max_length=100)]
    detail: str = ""
    filters: tuple[str, ...] = ()


def check_message(packet: Publish) -> None:
    """Raises LocalProtocolError if HTTP cannot carry a message that MQTT can."""
    properties = packet.properties or {}
    content_type = properties.get("content_type")
    if content_type is not None and (
        not content_type.isascii()
        or not content_type.isprintable()
        or content_type != content_type.strip()
        or content_type.lower() in ("", _FORM)
    ):
        raise LocalProtocolError(
            f"HTTP cannot carry the content type {content_type!r:.100}: it must be printable ASCII, and not {_FORM}"
        )
    if any(not name for name, _ in properties.get("user_property", ())):
        raise LocalProtocolError("HTTP cannot carry a user property without a name")


def publish_request(packet: Publish, key: str, remaining_s: float | None) -> tuple[str, list[tuple[str, str]]]:
    """Target and header fields of the POST. `remaining_s`: what is left of the lifetime that the message shall have at
    its receivers. QoS 2 becomes 1: the key makes sure that the message is stored once."""
    properties = packet.properties or {}
    query = [f"qos={min(packet.qos, 1)}"]
    query += ["retain=true"] if packet.retain else []
    query += [] if remaining_s is None else [f"expiry={max(0, math.ceil(remaining_s))}"]
    if "response_topic" in properties:
        query.append(f"response_topic={quote(properties['response_topic'], safe='')}")
    fields = [("Idempotency-Key", key)]
    if "content_type" in properties:
        fields.append(("Content-Type", properties["content_type"]))
    if "correlation_data" in properties:
        fields.append(("Correlation-Data", base64.b64encode(properties["correlation_data"]).decode()))
    pairs = properties.get("user_property")
    if pairs:
        fields.append(("User-Property", ", ".join(f"{quote(n, safe='')}={quote(v, safe='')}" for n, v in pairs)))
    return f"/v1/messages/{_segment(packet.topic)}?{'&'.join(query)}", fields


def stream_target(filters: Iterable[str]) -> str:
    """The target of the GET that opens a stream with exactly these subscriptions."""
    query = ["acknowledge=client", "qos=1", *(f"filter={quote(one, safe='')}" for one in filters)]
    return f"/v1/stream?{'&'.join(query)}"


def judge_published(answer: Answer, message_id: str) -> Outcome:
    """What became of a message. Raises AnswerFault if the answer is not one that a gateway gives to it."""
    if answer.status == 202:
        if answer.content_type != "application/json" or _decoded(answer.body, _StoredBody).id != message_id:
            raise AnswerFault("what answers 202 does not name the message: it is not the gateway")
        return Stored()
    problem = _problem(answer)
    text = printable(problem.detail or problem.reason)
    reason = reason_named(problem.reason)
    if answer.status in (408, 429, 500, 503):
        is_nowhere = answer.status == 429 or (answer.status == 503 and problem.reason != "kafka_timeout")
        return TryAgain(_retry_after_s(answer.retry_after), reason, text, is_nowhere)
    refused = _REFUSED.get(answer.status)
    if refused is None or problem.reason in _OF_THE_CLIENT:
        raise AnswerFault(f"it answers {answer.status} to a message: {text}")
    known = problem.reason.upper() in ReasonCode.__members__ and reason >= _LOWEST_FAILURE
    return Refused(reason if known else refused, text)


def judge_acknowledged(answer: Answer) -> None:
    """The answer to an acknowledgement. An event that the gateway does not know comes again. Raises AnswerFault."""
    if answer.status != 204 and (answer.status not in (404, 409, 503) or not _problem(answer)):
        raise AnswerFault(f"it answers {answer.status} to an acknowledgement")


def stream_refused(answer: Answer, filters: Collection[str]) -> MqttClientError | None:
    """The error of a stream that is not opened; None if it is. SubscribeRefused names those of `filters`, at least one,
    without which the gateway may open it."""
    if answer.status == 200:
        if answer.content_type == "text/event-stream" and _CLIENT_ID.fullmatch(answer.client_id):
            return None
        return Unreachable(
            "the answer is not a stream of a gateway: perhaps this network has a login page, or the gateway is of an "
            "earlier version"
        )
    if 300 <= answer.status < 400:
        return Unreachable(f"it answers {answer.status}, a redirect: perhaps this network has a login page")
    try:
        problem = _problem(answer)
    except AnswerFault as error:
        return Unreachable(str(error))
    text = f"{printable(problem.detail or problem.reason)} ({answer.status})"
    reason = reason_named(problem.reason)
    if answer.status in (401, 403) and reason is ReasonCode.UNSPECIFIED_ERROR:
        reason = ReasonCode.NOT_AUTHORIZED
    if answer.status == 431:
        reason = ReasonCode.PACKET_TOO_LARGE
    refused = [one for one in problem.filters if one in filters]
    if answer.status in (400, 403, 429) and refused:
        return SubscribeRefused(dict.fromkeys(refused, max(reason, _LOWEST_FAILURE)), None)
    if answer.status in (400, 401, 403, 429, 431, 503):
        return ConnectRefused(Closed(reason, f"the gateway refused the connection: {text}", EndedBy.REFUSED))
    return Unreachable(f"the gateway answers {text}")


def printable(text: str) -> str:
    """What a stranger says, on one line, bounded."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * _TEXT_MAX]).split())[:_TEXT_MAX]


def _segment(topic: str) -> str:
    """The topic as one segment of a path. A segment of dots only would be removed on the way (RFC 3986, 5.2.4)."""
    return topic.replace(".", "%2E") if topic in (".", "..") else quote(topic, safe="")


def _problem(answer: Answer) -> _Problem:
    if answer.content_type != PROBLEM:
        raise AnswerFault(f"it answers {answer.status}, but not as a gateway does: perhaps a proxy or a login page")
    return _decoded(answer.body, _Problem)


def _decoded(body: bytes, kind: type[B]) -> B:
    try:
        return msgspec.json.decode(body, type=kind)
    except UNDECODABLE as error:
        raise AnswerFault(f"the answer's body is not what a gateway writes ({error})") from error


def _retry_after_s(text: str) -> float | None:
    """Seconds; a date is not read: no gateway sends one (RFC 9110, 10.2.3)."""
    return min(float(text), RETRY_AFTER_MAX_S) if text.isascii() and text.isdigit() and len(text) < 10 else None
