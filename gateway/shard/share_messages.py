"""What the shard of a share group and the shards of its members say to one another (MQTT 5.0, 4.8.2; R6).

A group lives in the shard of its name, its members anywhere. Neither calls the other: they send these messages, which
each shard gets in the order in which another one sent them. One may be lost with the home that was to get it; so a home
that starts says so, and what is still open is sent again. Whoever gets a message twice knows it by its number.

An assignment may be sent again while the member's shard gives it back, because it had no connection for it: `Returned`
is on its way, and the session has a connection by then. So each sending of an assignment is told from the others, and
the session gives back the one that has come last. The group takes back only what it has not sent again since:
otherwise another member would get what the session has taken.

| to the group | says                                                                                        |
|--------------|---------------------------------------------------------------------------------------------|
| `Join`       | a session becomes a member, or has new options; `Joined` answers once that is durable       |
| `Leave`      | a session is a member no more; `Left` answers once what it has in hand is safe              |
| `Reachable`  | how many messages a member takes, or that it is away                                        |
| `Finished`   | what became of an assignment                                                                |
| `Returned`   | assignments that the member has not been sent, or at QoS 1 not acknowledged                 |
| `Announced`  | those were all members that a shard has                                                     |
| `Uncertain`  | exchanges at QoS 2 from before a restart, of which the session does not know whether they   |
|              | come again; `Forgotten` answers as soon as one does not                                     |

| to the member | says                                                                                       |
|---------------|--------------------------------------------------------------------------------------------|
| `Assign`      | an assignment: a message for one member, and for nobody else until its result is there     |

`Started` goes to all shards. Whoever gets it sends what is open with the shard again, its members, `Announced`, and
`Uncertain`: the session log may have an exchange that was given back before it was sent.

Between homes of different processes a message is a record on `egress` of the shard that is to get it, with the header
`share`. What was there before a home has started is void: it asks again.

Where gateways share the shards it has the header `sender` too, with the sender's shard and epoch: `<shard>;<epoch>`.
What a home says after another one has begun a higher epoch of its shard is void (:mod:`gateway.shard.share_senders`).
"""

import re
from typing import Final, Literal, NamedTuple

import msgspec

from gateway.shard.messages import Assignment, Message, Outcome, Sending
from schemas.envelope import SENDER_HEADER, SHARE_HEADER, Headers, Incarnation
from schemas.errors import RecordError
from schemas.leases import HIGHEST_EPOCH
from schemas.session_log import SubscriptionRecord
from schemas.undecodable import UNDECODABLE

Result = Outcome | Literal["unknown"]
"""`unknown`: the session is over; whether it had the assignment before, its shard does not know."""


class Join(msgspec.Struct, tag=True):
    """`request` is a number of the member's shard, `shard`; without one nobody waits for the answer. `capacity` as in
    :class:`Reachable`. `record` has the member's options, and of a member that had joined before also what `Joined` has
    told it of the group."""

    group: str
    client: str
    session: Incarnation
    shard: int
    record: SubscriptionRecord
    capacity: int | None
    request: int | None


class Joined(msgspec.Struct, tag=True):
    """`record` says since when and from where on the group gets messages."""

    request: int
    record: SubscriptionRecord


class Leave(msgspec.Struct, tag=True):
    """Without a `request` nobody waits for the answer."""

    group: str
    client: str
    session: Incarnation
    shard: int
    request: int | None


class Left(msgspec.Struct, tag=True):
    request: int


class Reachable(msgspec.Struct, tag=True):
    """`capacity`: how many assignments the member takes at a time; 0 for none at present, None if it is away."""

    group: str
    client: str
    session: Incarnation
    capacity: int | None


class Assign(msgspec.Struct, tag=True, gc=False):
    """`packet_id`: under which the session was sent the message before, at QoS 1; 0 if it was not. At QoS 2 no
    assignment below `open_from` is open between the group's shard and this client; what the session remembers of those
    it may forget. `sending` is none in messages of earlier versions."""

    assignment: Assignment
    client: str
    session: Incarnation
    message: Message
    qos: int
    retain: bool
    subscription_ids: tuple[int, ...]
    packet_id: int
    open_from: int
    sending: Sending = (0, 0)


class Finished(msgspec.Struct, tag=True, gc=False):
    number: int
    result: Result


class Returned(msgspec.Struct, tag=True):
    """`assignments`: number, and the packet id with which the client was sent it, 0 if it was not; `sendings`: which
    sending of each is meant. Messages of earlier versions do not say that."""

    assignments: list[tuple[int, int]]
    sendings: list[Sending] = []


class Announced(msgspec.Struct, tag=True):
    shard: int


class Uncertain(msgspec.Struct, tag=True):
    """`numbers`: of assignments of the receiver's shard."""

    client: str
    session: Incarnation
    shard: int
    numbers: list[int]


class Forgotten(msgspec.Struct, tag=True):
    """`numbers`: of assignments of `shard` that will not be sent to the session again."""

    client: str
    session: Incarnation
    shard: int
    numbers: list[int]


class Started(msgspec.Struct, tag=True):
    shard: int


ToGroup = Join | Leave | Reachable | Finished | Returned | Announced | Uncertain
ToMember = Joined | Left | Assign | Forgotten
ShareMessage = ToGroup | ToMember | Started


class Sender(NamedTuple):
    """The home that says something: its shard, and the epoch in which it has that; 0 if it shares shards with none."""

    shard: int
    epoch: int


_VERSION = b"1"
_SENDER: Final = re.compile(rb"([0-9]{1,6});([1-9][0-9]{0,15})")
_decoder = msgspec.msgpack.Decoder(ShareMessage)


def encode(message: ShareMessage, sender: Sender) -> tuple[bytes, Headers]:
    """Value and headers of a record on `egress`."""
    headers: Headers = [(SHARE_HEADER, _VERSION)]
    if sender.epoch:
        headers.append((SENDER_HEADER, b"%d;%d" % sender))
    return msgspec.msgpack.encode(message), headers


def sender_of(headers: Headers) -> Sender | None:
    """Who has written a message; None if it does not say. Raises RecordError if that is malformed."""
    if len(headers) < 2 or headers[1][0] != SENDER_HEADER:
        return None
    found = _SENDER.fullmatch(headers[1][1] or b"")
    if found is None or int(found[2]) > HIGHEST_EPOCH:
        raise RecordError(f"the sender {headers[1][1]!r} of a message about share groups is malformed")
    return Sender(int(found[1]), int(found[2]))


def decode(value: bytes, headers: Headers) -> ShareMessage | None:
    """None if the record is no such message. Raises RecordError for another version, or a malformed one."""
    if not headers or headers[0][0] != SHARE_HEADER:
        return None
    if headers[0][1] != _VERSION:
        raise RecordError(f"version {headers[0][1]!r} of a message about share groups is not {_VERSION!r}")
    try:
        message: ShareMessage = _decoder.decode(value)
    except UNDECODABLE as error:
        raise RecordError(f"a message about share groups is malformed: {error}") from error
    return message
