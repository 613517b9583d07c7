"""From the bytes of a bundle to the message that the platform publishes for its originator. Pure (M7, M14, M17).

Everything in a bundle is hostile until its originator's signature is verified, and much of it afterwards.
"""

import base64
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from bundles import bundle as bundle_format
from bundles import content as content_format
from bundles.bundle import Bundle, Header, Kind
from bundles.content import Content
from bundles.errors import BundleError, SealError
from bundles.identity import Identity
from mqtt.client_publish import check_publish
from mqtt.errors import LocalProtocolError
from mqtt.packets import Publish
from mqtt.topics import is_topic_name
from schemas.envelope import BUNDLE_WINDOW, BundleMark
from schemas.mesh_api import BUNDLE_TYPE, CERTIFICATE_PROPERTY

_QOS: Final = 2
"""A recipient that subscribes at QoS 2 gets it once, over crashes too."""
_NOT_AGENTS: Final = ("$", "http:", "http-")
"""Names of the platform itself, and of clients over HTTP."""


class Refused(Exception):
    """The bundle will never be taken; the text says why."""


class NotOurKey(Refused):
    """The payload is sealed to no key that the platform has here."""


class Opened(NamedTuple):
    """A message, its id and whose it is; `packet_id` of the packet is 0."""

    message_id: str
    header: Header
    packet: Publish
    mark: BundleMark


def read(raw: bytes, bytes_max: int) -> Bundle:
    """A bundle, not verified yet. Raises Refused."""
    if len(raw) > bytes_max:
        raise Refused(f"the bundle has {len(raw)} bytes, more than {bytes_max}")
    try:
        return bundle_format.decode(raw)
    except BundleError as error:
        raise Refused(str(error)) from error


def verify(bundle: Bundle, keys: Sequence[Ed25519PublicKey], lifetime_s: int) -> None:
    """Raises Refused unless the bundle is its originator's, and alive, and one that recipients can remember."""
    name = bundle.header.originator
    if name.startswith(_NOT_AGENTS):
        raise Refused(f"{name!r} is not a name of an agent")
    try:
        bundle_format.verify(bundle, keys)
    except BundleError as error:
        raise Refused(str(error)) from error
    if not bundle.remaining_s:
        raise Refused("its lifetime is over")
    header = bundle.header
    if header.lifetime_s > lifetime_s:
        raise Refused(f"its lifetime is {header.lifetime_s} s, longer than gateway.mesh.lifetime_s = {lifetime_s}")
    if header.sequence - header.low_water >= BUNDLE_WINDOW:
        raise Refused(
            f"it is message {header.sequence} of its originator, and message {header.low_water} to the same recipient "
            f"was alive when it was written; between them may be at most {BUNDLE_WINDOW}"
        )


def open_bundle(bundle: Bundle, platform: Identity, certificates: Sequence[bytes] = ()) -> Opened:
    """What a verified bundle says: of a message the content; an envelope stays closed, and is the payload, with the
    originator's `certificates` (DER), by which the recipient verifies it. Raises Refused."""
    header = bundle.header
    if not is_topic_name(header.destination):
        raise Refused(f"the destination {header.destination!r} is neither a topic nor an inbox")
    mark = BundleMark(header.incarnation, header.sequence, header.low_water, header.kind is Kind.ENVELOPE)
    properties: dict[str, Any] = {"message_expiry_interval": bundle.remaining_s}
    if header.kind is Kind.ENVELOPE:
        properties["content_type"] = BUNDLE_TYPE
        encoded = [base64.b64encode(one).decode("ascii") for one in certificates]
        properties["user_property"] = [(CERTIFICATE_PROPERTY, one) for one in encoded]
        payload, retain = bundle_format.encode(bundle.carried(0)), False
    else:
        content = _content(bundle, platform)
        payload, retain = content.payload, content.retain
        properties |= _properties(content)
    packet = Publish(header.destination, payload, _QOS, retain, properties=properties)
    try:
        check_publish(packet)
    except LocalProtocolError as error:
        raise Refused(f"no MQTT packet can hold its message: {error}") from error
    return Opened(bundle.message_id, header, packet, mark)


def _content(bundle: Bundle, platform: Identity) -> Content:
    try:
        return content_format.decode(platform.unseal(bundle))
    except SealError as error:
        raise NotOurKey(f"{error}: seal it to the key of {platform.name}") from error
    except BundleError as error:
        raise Refused(str(error)) from error


def _properties(content: Content) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if content.response_topic:
        found["response_topic"] = content.response_topic
    if content.content_type:
        found["content_type"] = content.content_type
    if content.correlation_data:
        found["correlation_data"] = content.correlation_data
    if content.user_properties:
        found["user_property"] = content.user_properties
    return found
