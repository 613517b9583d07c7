"""What agents and gateways exchange over HTTP about bundles and message presence; JSON, bytes as base64 (M7, M9-M13).

| request | body | answer |
|---|---|---|
| `POST /v1/bundles` | :class:`BundlesRequest` | :class:`BundlesAnswer`: a result for each bundle, in order |
| `POST /v1/message-presence` | :class:`ReportsRequest` | :class:`ReportsAnswer`: a result for each event, in order |
| `POST /v1/message-presence/query` | :class:`PresenceQuery` | :class:`PresenceAnswer` |
| `GET /v1/mesh` | | :class:`MeshState` |

An answer with another status than 200 is a problem (RFC 9457), and nothing of the request is known to have happened;
every request may be repeated.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from schemas.states import MessagePresenceState

BUNDLES_PATH: Final = "/v1/bundles"
REPORTS_PATH: Final = "/v1/message-presence"
QUERY_PATH: Final = "/v1/message-presence/query"
MESH_PATH: Final = "/v1/mesh"

BUNDLES_MAX: Final = 500
EVENTS_MAX: Final = 500
IDS_MAX: Final = 500
CERTIFICATES_MAX: Final = 500
BUNDLE_TYPE: Final = "application/vnd.waystation.bundle"
"""Content type of a message whose payload is an encoded bundle: the platform hands it to the recipient's agent."""
CERTIFICATE_PROPERTY: Final = "certificate"
"""User property of such a message, once for each certificate of the originator: its DER as base64. The recipient's
agent may never have met anybody who has it."""

Moment = Annotated[int, Meta(ge=0, le=253_402_300_799_000_000)]
"""µs since the epoch, up to the year 9999."""
Name = Annotated[str, Meta(max_length=1024)]
MESSAGE_ID_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"
MessageId = Annotated[str, Meta(pattern=MESSAGE_ID_PATTERN)]


class BundlesRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Encoded bundles (:mod:`bundles.bundle`), and certificates (DER) of their originators."""

    bundles: Annotated[list[bytes], Meta(max_length=BUNDLES_MAX)]
    certificates: Annotated[list[bytes], Meta(max_length=CERTIFICATES_MAX)] = []


class BundleResult(msgspec.Struct, frozen=True):
    """`taken`: stored by the platform, now or before; `receipt` is the encoded receipt (:mod:`bundles.receipt`).
    `refused`: it will never be taken, for `reason`. `later`: try again, because of `reason`."""

    outcome: Literal["taken", "refused", "later"]
    reason: str = ""
    receipt: bytes = b""


class BundlesAnswer(msgspec.Struct, frozen=True):
    """The results, in the order of the bundles."""

    results: list[BundleResult]


class ReportedEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event of :class:`schemas.events.MessagePresenceEvent`, whose agent is the caller."""

    id: MessageId
    event: Literal["attempting", "propagated", "claimed", "delivered", "refused", "expired", "retired"]
    at_us: Moment
    origin: Name = ""
    peer: Name = ""
    reason: Name = ""
    until_us: Moment = 0


class ReportsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Events, in the order in which they happened."""

    events: Annotated[list[ReportedEvent], Meta(max_length=EVENTS_MAX)]


class ReportResult(msgspec.Struct, frozen=True):
    """`stored`: message presence has the event. `granted`: the answer to `claimed`, whether the caller may deliver.
    `problem`: why it is not stored, or not judged in time; it may be reported again."""

    stored: bool
    granted: bool | None = None
    problem: str = ""


class ReportsAnswer(msgspec.Struct, frozen=True):
    """The results, in the order of the events."""

    results: list[ReportResult]


class PresenceQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ids of messages."""

    ids: Annotated[list[MessageId], Meta(max_length=IDS_MAX)]


class PresenceAnswer(msgspec.Struct, frozen=True):
    """What message presence knows, by id, without those it does not know; and encoded receipts of those that the
    platform itself has taken."""

    states: dict[str, MessagePresenceState]
    receipts: dict[str, bytes]


class MeshState(msgspec.Struct, frozen=True):
    """The gateways' certificates (DER) and the newest revocation list (:mod:`bundles.revocations`; empty if none)."""

    certificates: list[bytes]
    revocations: bytes = b""
