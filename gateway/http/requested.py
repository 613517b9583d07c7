"""Converts a POST to `/v1/requests/…` to a PUBLISH that asks for replies (MQTT 5.0, 4.10; R6)."""

import math
import re
from typing import Any, Final, NamedTuple

import msgspec
from multidict import CIMultiDictProxy

from gateway.http.posted_message import (
    QOS,
    Posted,
    content_type,
    destination,
    idempotency_key,
    one_of,
    user_properties,
)
from gateway.http.problems import bad_request
from gateway.http.target import Query
from mqtt.packets import Publish
from schemas.http_settings import HttpSettings
from schemas.repeated_requests import repeated

PARAMETERS: Final = ("again_after", "most", "qos", "replies", "timeout")
MOST_MAX: Final = 1_000_000
"""The largest `most`."""

_KEY_MARK: Final = "request "
"""Begins what a request's key counts as: a message with the same Idempotency-Key is another message. No key has a
space."""

_WHOLE = re.compile("[1-9][0-9]{0,9}")


class Requested(NamedTuple):
    """A request without its payload, which is read later, and without its reply address. The message expires after
    `timeout_s`, when nobody waits any more. `most` replies end it, None for no limit. After `again_after_s` without a
    reply it is sent again, None for never."""

    posted: Posted
    timeout_s: int
    wants_all: bool
    most: int | None
    again_after_s: int | None = None

    @property
    def key(self) -> str:
        """Its Idempotency-Key, "" if none."""
        return self.posted.key.removeprefix(_KEY_MARK)

    def with_key(self, key: str) -> "Requested":
        """The same with an Idempotency-Key."""
        return self._replace(posted=self.posted._replace(key=f"{_KEY_MARK}{key}"))

    def again(self, left_s: float) -> Posted:
        """What is sent again, with the reply address that it has by now, `left_s` before the end. It has no key: that
        is for its first time."""
        packet = self.posted.packet
        properties = dict(packet.properties or {})
        properties["message_expiry_interval"] = max(1, math.ceil(left_s))
        properties["user_property"] = repeated(properties.get("user_property", ()))
        return Posted(msgspec.structs.replace(packet, properties=properties), "")


def requested(raw_destination: str, query: Query, headers: CIMultiDictProxy[str], settings: HttpSettings) -> Requested:
    """Raises Problem 400, which says what is wrong."""
    topic = destination(raw_destination)
    qos = one_of(query, "qos", QOS, 1)
    wants_all = one_of(query, "replies", {"one": False, "all": True}, False)
    timeout_s = _whole(query, "timeout", settings.request_timeout_max_s) or settings.request_timeout_s
    most = _whole(query, "most", MOST_MAX)
    again_after_s = _whole(query, "again_after", settings.request_timeout_max_s)
    query.done(PARAMETERS)
    if most is not None and not wants_all:
        raise bad_request("malformed_parameter", "most is only for replies=all")
    if again_after_s is not None and wants_all:
        raise bad_request("malformed_parameter", "again_after is only for one reply")
    if "Correlation-Data" in headers:
        raise bad_request("malformed_header", "the gateway chooses the Correlation-Data of a request: leave it out")
    properties: dict[str, Any] = {"message_expiry_interval": timeout_s}
    if kind := content_type(headers):
        properties["content_type"] = kind
    if pairs := user_properties(headers):
        properties["user_property"] = pairs
    key = idempotency_key(headers)
    packet = Publish(topic, b"", qos, False, False, qos, properties)
    asked = Requested(Posted(packet, ""), timeout_s, wants_all, most if wants_all else 1, again_after_s)
    return asked.with_key(key) if key else asked


def _whole(query: Query, name: str, largest: int) -> int | None:
    """A parameter that is a whole number above 0; None without it. Raises Problem 400."""
    text = query.take(name)
    if text is None:
        return None
    if not _WHOLE.fullmatch(text) or int(text) > largest:
        raise bad_request("malformed_parameter", f"{name} must be a whole number from 1 to {largest}")
    return int(text)
