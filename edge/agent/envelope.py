"""What travels between agents: a mail with its envelope, a file, or a message of MQTT, as an MQTT 5.0 message.

The payload is the mail (RFC 5322) or the file, byte for byte. All else is in user properties, version 1:

    waystation-envelope  "1"
    id                   32 lower-case hexadecimal digits, by which the receiver recognises a repetition
    kind                 "mail" | "file", or "mqtt" (:mod:`edge.agent.mqtt.message`)
    from                 mail: the address of MAIL FROM, empty for the null sender `<>` (RFC 5321, 4.5.5)
    to                   mail: an address of RCPT TO; once for each recipient
    smtputf8             mail: "1" if the sender asked for SMTPUTF8 (RFC 6531)
    name                 file: the name it had, for people; never a path

Unknown properties are ignored. Whoever may publish to the agent's inbox may have written anything: all is checked.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from edge.agent.errors import EnvelopeError

MAIL_TYPE: Final = "message/rfc822"
FILE_TYPE: Final = "application/octet-stream"
VERSION: Final = "1"
RECIPIENTS_MAX: Final = 1_000
ADDRESS_BYTES_MAX: Final = 254  # RFC 5321, 4.5.3.1.3, without the angle brackets
NAME_BYTES_MAX: Final = 255

_ID: Final = re.compile(r"[0-9a-f]{32}\Z")
# No quoted local parts: their spaces and brackets could end an SMTP command's argument. No surrogates, by which bytes
# that are not UTF-8 are read: neither a file nor a packet takes them.
_ADDRESS: Final = re.compile(
    r"[^\s<>\"\\@,;:()\x00-\x1f\x7f\ud800-\udfff]+@[^\s<>\"\\@,;()\x00-\x1f\x7f\ud800-\udfff]+\Z"
)

Properties = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Mail:
    """`sender` is empty for the null sender; `content` is the message as SMTP's DATA had it, without dot-stuffing."""

    id: str
    sender: str
    recipients: tuple[str, ...]
    content: bytes
    smtputf8: bool = False

    def properties(self) -> list[tuple[str, str]]:
        """The user properties of its message."""
        found = [*head(self.id, "mail"), ("from", self.sender), *(("to", address) for address in self.recipients)]
        return [*found, ("smtputf8", "1")] if self.smtputf8 else found


@dataclass(frozen=True)
class File:
    """`name` is for people only."""

    id: str
    name: str
    content: bytes

    def properties(self) -> list[tuple[str, str]]:
        """The user properties of its message."""
        return [*head(self.id, "file"), ("name", self.name)]


def is_id(text: str) -> bool:
    """Whether it is the id of a message."""
    return _ID.match(text) is not None


def is_address(address: str) -> bool:
    """Whether it is an address that an envelope may have: no quoted local part, no control character, UTF-8."""
    return _ADDRESS.match(address) is not None and len(address.encode()) <= ADDRESS_BYTES_MAX


def id_of(properties: Iterable[tuple[str, str]]) -> str | None:
    """The id in a message's user properties, if it has a valid one."""
    return next((value for name, value in properties if name == "id" and is_id(value)), None)


def read(properties: Properties, payload: bytes) -> Mail | File:
    """The mail or file in a message from the platform. Raises EnvelopeError, whatever the bytes."""
    identifier, kind = opened(properties)
    single = dict(properties)
    if kind == "file":
        name = single.get("name", "")
        return File(identifier, name if len(name.encode(errors="replace")) <= NAME_BYTES_MAX else "", payload)
    if kind != "mail":
        raise EnvelopeError(f"its kind is {kind[:20]!r}, neither mail nor file")
    recipients = tuple(dict.fromkeys(value for name, value in properties if name == "to"))
    sender = single.get("from")
    if sender is None or (sender and not is_address(sender)):
        raise EnvelopeError("its sender is missing or malformed")
    if not 0 < len(recipients) <= RECIPIENTS_MAX:
        raise EnvelopeError(f"it has {len(recipients)} recipients; 1 to {RECIPIENTS_MAX} are allowed")
    if not all(map(is_address, recipients)):
        raise EnvelopeError("a recipient's address is malformed")
    return Mail(identifier, sender, recipients, payload, single.get("smtputf8") == "1")


def opened(properties: Properties) -> tuple[str, str]:
    """The id and the kind of an envelope. Raises EnvelopeError if it is none, or of another version."""
    single = dict(properties)
    version = single.get("waystation-envelope")
    if version is None:
        raise EnvelopeError("it has no envelope: no agent has sent it")
    if version != VERSION:
        raise EnvelopeError(f"its envelope has version {version[:20]!r}, and this agent reads version {VERSION}")
    identifier = single.get("id", "")
    if not is_id(identifier):
        raise EnvelopeError("its id is missing or malformed")
    return identifier, single.get("kind", "")


def head(identifier: str, kind: str) -> list[tuple[str, str]]:
    """The user properties that every envelope begins with."""
    return [("waystation-envelope", VERSION), ("id", identifier), ("kind", kind)]
