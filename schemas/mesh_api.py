"""What agents and gateways exchange over HTTP about bundles and message presence; JSON, bytes as base64 (M7, M9-M13,
M15, M21).

| request | body | answer |
|---|---|---|
| `POST /v1/bundles` | :class:`BundlesRequest` | :class:`BundlesAnswer`: a result for each bundle, in order |
| `POST /v1/message-presence` | :class:`ReportsRequest` | :class:`ReportsAnswer`: a result for each event, in order |
| `POST /v1/message-presence/query` | :class:`PresenceQuery` | :class:`PresenceAnswer` |
| `GET /v1/mesh` | | :class:`MeshState` |
| `POST /v1/mesh/certificates` | :class:`CertificatesRequest` | :class:`CertificatesAnswer` |
| `POST /v1/bundles/waiting` | :class:`WaitingRequest` | :class:`WaitingAnswer`: bundles for devices that are away |
| `POST /v1/receipts` | :class:`ReceiptsRequest` | :class:`ReceiptsAnswer`: a result for each receipt, in order |

An answer with another status than 200 is a problem (RFC 9457), and nothing of the request is known to have happened;
every request may be repeated.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from schemas.events import NAME_CHARACTERS
from schemas.states import MessagePresenceState

CALLERS: Final = "http"
"""Every agent that reports over HTTP is called `http…` (:mod:`gateway.http.identity`), so the platform is not."""
BUNDLES_PATH: Final = "/v1/bundles"
REPORTS_PATH: Final = "/v1/message-presence"
QUERY_PATH: Final = "/v1/message-presence/query"
MESH_PATH: Final = "/v1/mesh"
CERTIFICATES_PATH: Final = "/v1/mesh/certificates"
WAITING_PATH: Final = "/v1/bundles/waiting"
RECEIPTS_PATH: Final = "/v1/receipts"

BUNDLES_MAX: Final = 500
EVENTS_MAX: Final = 500
IDS_MAX: Final = 500
STATES_BYTES: Final = 4_194_304
"""The most that the states of one answer take as JSON; a single state takes less than 1,000,000."""
CERTIFICATES_MAX: Final = 500
NAMES_MAX: Final = 500
DEVICES_MAX: Final = 500
RECEIPTS_MAX: Final = 500
BUNDLE_TYPE: Final = "application/vnd.waystation.bundle"
"""Content type of a message whose payload is an encoded bundle: the platform hands it to the recipient's agent."""
CERTIFICATE_PROPERTY: Final = "certificate"
"""User property of such a message, once for each certificate of the originator: its DER as base64. The recipient's
agent may never have met anybody who has it."""

Moment = Annotated[int, Meta(ge=0, le=253_402_300_799_000_000)]
"""µs since the epoch, up to the year 9999."""
Name = Annotated[str, Meta(max_length=NAME_CHARACTERS)]
Position = Annotated[int, Meta(ge=0, le=9_223_372_036_854_775_807)]
"""A place among what waits for a device; it stays valid over restarts of gateways."""
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
    platform itself has taken. `left_out`: ids of which it knows something for which the answer has no space, beyond
    `STATES_BYTES`: ask again for these."""

    states: dict[str, MessagePresenceState]
    receipts: dict[str, bytes]
    left_out: list[str] = []


class MeshState(msgspec.Struct, frozen=True):
    """The gateways' certificates (DER) and the newest revocation list (:mod:`bundles.revocations`; empty if none)."""

    certificates: list[bytes]
    revocations: bytes = b""


class WaitingRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Devices that the agent reaches or may meet, each with the position up to which it has got what waits; 0 at
    first."""

    devices: Annotated[dict[Name, Position], Meta(max_length=DEVICES_MAX)]


class WaitingAnswer(msgspec.Struct, frozen=True):
    """Encoded bundles, for each device the oldest first; certificates (DER) of their originators as far as the gateway
    knows them; `positions` of the devices that were read, for the next request; whether there may be `more` now; and
    the devices of which the agent gets nothing, with the reason. Nothing is removed by that."""

    bundles: list[bytes]
    certificates: list[bytes]
    positions: dict[str, int]
    more: bool
    refused: dict[str, str]


class ReceiptsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Encoded receipts of recipients (:mod:`bundles.receipt`), whoever has learnt them, and certificates (DER) of the
    signers."""

    receipts: Annotated[list[bytes], Meta(max_length=RECEIPTS_MAX)]
    certificates: Annotated[list[bytes], Meta(max_length=CERTIFICATES_MAX)] = []


class ReceiptResult(msgspec.Struct, frozen=True):
    """`settled`: the message waits no more, and that is durable. `unknown`: it does not wait here, perhaps not any
    more. `refused`: it is no receipt of a recipient, because of `reason`. `later`: bring it again, because of
    `reason`."""

    outcome: Literal["settled", "unknown", "refused", "later"]
    reason: str = ""


class ReceiptsAnswer(msgspec.Struct, frozen=True):
    """The results, in the order of the receipts."""

    results: list[ReceiptResult]


class CertificatesRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The caller's own certificates (DER), for others to ask for; and the names whose certificates it asks for."""

    certificates: Annotated[list[bytes], Meta(max_length=CERTIFICATES_MAX)] = []
    names: Annotated[list[Name], Meta(max_length=NAMES_MAX)] = []


class CertificatesAnswer(msgspec.Struct, frozen=True):
    """The certificates (DER) of those names that the gateway knows."""

    certificates: list[bytes]
