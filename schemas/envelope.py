"""The envelope of a message: the Kafka headers of `ingress` and `egress`, version 1.

A record of `ingress` has the destination as key (UTF-8), the payload as value, and exactly these headers in this order:

| header  | content                                                                                         |
|---------|-------------------------------------------------------------------------------------------------|
| `id`    | message id, a UUID in canonical text                                                            |
| `src`   | client id of the sender                                                                         |
| `meta`  | `version;qos;flags;expires;accepted;seq[;[session][;[bundle][;[feed][;epoch]]]]`: :class:`Meta`  |
| `props` | the MQTT 5 property section that travels with the message, as on the wire; a zero byte for none |

A record of `egress` has the same key, value and headers, then

| header   | content                                                                                        |
|----------|------------------------------------------------------------------------------------------------|
| `instr`  | `partition;offset;number;limit;appended;scope`, see :class:`Instruction`                       |
| `router` | which router wrote this copy: `active` or `backup`                                             |

On `egress` there are also records that a gateway has written to another shard, with the header `share`: what share
groups and their members say to one another (:mod:`gateway.shard.share_messages`); and those with `feeds` as the first
header, which a home writes to its own shard about redundant feeds (:mod:`gateway.shard.feed_records`). They are no
instructions of routers.

The order is fixed so that a reader can access headers by position. The router reads key and headers, never the payload
(R2).
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from schemas.errors import RecordError

VERSION = "1"
_VERSION_BYTES = VERSION.encode()
_ADAPTER = re.compile(rb"[^\x00-\x1f;]{1,255}")
_QOS = {b"0": 0, b"1": 1, b"2": 2}
INGRESS_HEADERS = ("id", "src", "meta", "props")
EGRESS_HEADERS = (*INGRESS_HEADERS, "instr", "router")
SHARE_HEADER = "share"
SENDER_HEADER = "sender"
FEEDS_HEADER = "feeds"
HOME_HEADERS = (SHARE_HEADER, FEEDS_HEADER)
"""The first headers of records on `egress` that homes have written."""
NO_PROPERTIES = b"\0"
"""As `props`: an empty property section as MQTT 5.0 encodes it."""
RETAIN_FLAG = "r"
"""In `flags`: the message becomes the retained message of its topic."""
OVERSIZED_FLAG = "a"
"""In `flags`: an attachment larger than the policy of the source gateway allows (`gateway.policy.attachments`, Q12)."""
CONVERSATION_FLAG = "c"
"""In `flags`: the message belongs to a conversation, whose id is among its user properties (R6,
:mod:`gateway.shard.conversation_properties`)."""
ANSWERABLE_FLAG = "n"
"""In `flags`: the sender of a message of a conversation may publish to its Response Topic. So a gateway may, to say
that the receiver of the conversation is gone."""
RECEIPT_FLAG = "q"
"""In `flags`: the sender asks for a receipt (:mod:`schemas.receipts`, Q13)."""
ROUTED = "routed"
EVERYONE = "everyone"
BUNDLE_WINDOW = 1 << 20
"""By how much the sequence of a bundle may exceed its low-water mark, less one: recipients remember each sequence in
between, in one bit (:mod:`gateway.shard.taken_bundles`)."""
MOST_OFFSET = 2**63 - 1
"""No offset, time or count of Kafka is higher."""
_U64 = 1 << 64
_SHOWN = 200
_SCOPES = {b"routed": ROUTED, b"everyone": EVERYONE}

Headers = list[tuple[str, bytes]]


class Incarnation(NamedTuple):
    """One session of a client, and no earlier or later one: `epoch` of the shard when the session began, and `number`
    within the epoch."""

    epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}"


class BundleMark(NamedTuple):
    """Which bundle of its sender a message came in (:mod:`bundles.bundle`): `incarnation` of the sender's store and
    `sequence` within it, which is less than :data:`BUNDLE_WINDOW` above `low_water`: below that no message of the
    sender to this recipient is alive. The recipient is the agent in the destination if it `is_envelope`, and else the
    platform, whatever the destination."""

    incarnation: int
    sequence: int
    low_water: int
    is_envelope: bool = False

    def __str__(self) -> str:
        kind = ".e" if self.is_envelope else ""
        return f"{self.incarnation}.{self.sequence}.{self.low_water}{kind}"


class FeedMark(NamedTuple):
    """The stamps of a copy that a feed adapter has written (:mod:`feeds.ingress_copy`); the destination has the name of
    the feed and the source stream id. `slot`: 0 for the active stream, 1 for the backup; the other fields are those of
    :class:`feeds.message.FeedMessage`. The adapter's name may contain dots, and characters that are not ASCII."""

    slot: int
    sequence: int
    part: int
    message_sequence: int
    read_us: int
    adapter: str

    def __str__(self) -> str:
        return ".".join(map(str, self))

    @classmethod
    def decode(cls, raw: bytes) -> "FeedMark":
        """Raises ValueError for a malformed field."""
        *numbers, adapter = raw.split(b".", 5)
        if _ADAPTER.fullmatch(adapter) is None:
            raise ValueError(f"{adapter[:300]!r} is no adapter's name")
        slot, sequence, part, message_sequence, read_us = map(_natural, numbers)
        if slot > 1:
            raise ValueError(f"the slot {slot} is neither 0 nor 1")
        return cls(slot, sequence, part, message_sequence, read_us, adapter.decode())


class Meta(NamedTuple):
    """What the source gateway decided about a message, once (Q12).

    `qos` is 0, 1 or 2; `flags` a string of letters (`r` retained, `a` oversized attachment, `w` will, `h` posted over
    HTTP, `c` of a conversation, `n` one whose sender may be answered by the platform, `q` with a receipt, `p` of the
    platform itself); `expires` the time after which it must not be delivered, ms since the epoch, None for never;
    `accepted` the time when the source gateway took the message, by its clock, µs since the epoch; `seq` the sender's
    packet identifier of a QoS 2 message of a persistent session, None otherwise (G8); `session` the incarnation of that
    session, None otherwise and in records of earlier versions; `bundle` of what agents have carried, None otherwise
    (M14); `feed` of copies that feed adapters have written, None otherwise (S3); `epoch` of the home that has written
    the message, if it is at QoS 0 or 2, a will, posted with a key, or retained, and gateways share the shards, None
    otherwise (:mod:`gateway.cluster.fencing`). All three stand here and not in headers of their own, because routers
    take records with exactly these headers.
    """

    qos: int
    flags: str
    expires: int | None
    accepted: int
    seq: int | None
    session: Incarnation | None = None
    bundle: BundleMark | None = None
    feed: FeedMark | None = None
    epoch: int | None = None

    @property
    def retain(self) -> bool:
        return RETAIN_FLAG in self.flags

    def encode(self) -> bytes:
        qos, flags, expires, accepted, seq, session, bundle, feed, epoch = self
        more = "" if session is None else f";{session}"
        if bundle is not None:
            more = f"{more or ';'};{bundle}"
        if feed is not None:
            more = f"{more or ';'}{';' if bundle is None else ''};{feed}"
        if epoch is not None:
            more = f"{more}{';' * (4 - more.count(';'))}{epoch}"
        number = "" if seq is None else seq
        return self.encode_plain(qos, flags, expires, accepted) + f"{number}{more}".encode()

    @staticmethod
    def encode_plain(qos: int, flags: str, expires: int | None, accepted: int) -> bytes:
        """As :meth:`encode` of a message that has no other fields: most do not, and this is the hot path."""
        return f"{VERSION};{qos};{flags};{'' if expires is None else expires};{accepted};".encode()

    @classmethod
    def decode(cls, raw: bytes) -> "Meta":
        """Raises RecordError for another version, a malformed field, or a number that cannot be."""
        fields = raw.split(b";")
        if fields[0] != _VERSION_BYTES:
            raise RecordError(f"envelope version {fields[0]!r} is not {VERSION}")
        try:
            _, qos, flags, expires, accepted, seq, *of = fields
            level = _QOS[qos]
            end, number, at = int(expires) if expires else None, int(seq) if seq else None, int(accepted)
            if not (0 <= at <= MOST_OFFSET and 0 <= (end or 0) <= MOST_OFFSET and 0 <= (number or 0) <= MOST_OFFSET):
                raise ValueError("a number is out of range")
            session, bundle, feed, epoch = _further(*of) if of else (None, None, None, None)
            return tuple.__new__(  # hot path
                cls, (level, flags.decode(), end, at, number, session, bundle, feed, epoch)
            )
        except KeyError as error:
            raise RecordError(f"header meta {raw!r} is malformed: its QoS is {qos!r}, not 0, 1 or 2") from error
        except (ValueError, TypeError) as error:
            raise RecordError(f"header meta {raw!r} is malformed: {error}") from error


def _further(
    session: bytes,
    bundle: bytes | None = None,
    feed: bytes | None = None,
    epoch: bytes | None = None,
    *later: bytes,
) -> tuple[Incarnation | None, BundleMark | None, FeedMark | None, int | None]:
    """Fields that a later release adds are passed over."""
    of = None
    if session or bundle is None:
        born, number = session.split(b".")
        of = Incarnation(int(born), int(number))
    mark = _bundle(bundle) if bundle or (bundle is not None and feed is None) else None
    copy = FeedMark.decode(feed) if feed or (feed is not None and epoch is None) else None
    return of, mark, copy, None if epoch is None or (later and not epoch) else _natural(epoch)


def _bundle(raw: bytes) -> BundleMark:
    incarnation, sequence, low_water, *kind = raw.split(b".")
    if kind not in ([], [b"e"]):
        raise ValueError(f"the kind of bundle {kind} is unknown")
    mark = BundleMark(int(incarnation), int(sequence), int(low_water), bool(kind))
    if not (0 <= mark.incarnation < _U64 and mark.low_water >= 0 and mark.sequence < _U64):
        raise ValueError("a number of a bundle is not one of 64 bits")
    if not 0 <= mark.sequence - mark.low_water < BUNDLE_WINDOW:
        raise ValueError(f"the sequence of a bundle is not within {BUNDLE_WINDOW} from its low-water mark")
    return mark


def _natural(raw: bytes) -> int:
    if not (raw.isdigit() and len(raw) <= 19 and (raw == b"0" or raw[0] != ord("0"))) or int(raw) > MOST_OFFSET:
        raise ValueError(f"{raw[:30]!r} is no number from 0 to 2^63-1")
    return int(raw)


class Instruction(NamedTuple):
    """ "Shard s, deliver this message": identified by (partition, offset) of the message on `ingress` and the shard.

    `number` counts 0 … n-1 within the message and scope; `limit` is n on the last instruction and None on the others
    (R3); `appended` is the message's append time on `ingress`, ms since the epoch, broker clock.

    `scope` is the decision the instruction belongs to: `routed` by the routes, or `everyone` because the routes were
    not known to be complete. One router may decide `routed` and its peer `everyone` for the same message; each decision
    is numbered and completed separately.
    """

    partition: int
    offset: int
    number: int
    limit: int | None
    appended: int
    scope: str = ROUTED

    def encode(self) -> bytes:
        limit = "" if self.limit is None else self.limit
        return f"{self.partition};{self.offset};{self.number};{limit};{self.appended};{self.scope}".encode()

    @classmethod
    def decode(cls, raw: bytes) -> "Instruction":
        """Raises RecordError for a malformed field, or a number that cannot be."""
        try:
            partition, offset, number, limit, appended, scope = raw.split(b";")
            p, o, n, at, most = int(partition), int(offset), int(number), int(appended), MOST_OFFSET
            of = int(limit) if limit else None
            if 0 <= p <= most and 0 <= o <= most and 0 <= at <= most and 0 <= n < (most if of is None else of) <= most:
                return tuple.__new__(cls, (p, o, n, of, at, _SCOPES.get(scope) or scope.decode()))  # the hot path
        except ValueError as error:
            raise RecordError(f"header instr {raw[:_SHOWN]!r} is malformed: {error}") from error
        raise RecordError(f"header instr {raw[:_SHOWN]!r} is malformed: a number is out of range")


def ingress_headers(message_id: str, source: str, meta: Meta, properties: bytes) -> Headers:
    """The headers of a record on `ingress`, in their fixed order."""
    return headers_of_source(source)(message_id, meta.encode(), properties)


def headers_of_source(source: str) -> Callable[[str, bytes, bytes], Headers]:
    """Makes the headers of many messages of a source, from id, encoded :class:`Meta` and properties."""
    src = "src", source.encode()

    def headers(message_id: str, meta: bytes, properties: bytes) -> Headers:
        return [("id", message_id.encode()), src, ("meta", meta), ("props", properties)]

    return headers
