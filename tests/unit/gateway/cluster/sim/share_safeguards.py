"""What makes share groups safe when shards change their owner, and how to switch each off (R6, G6, Q7;
:mod:`tests.unit.gateway.cluster.sim.safeguards`)."""

from collections.abc import Callable
from typing import Any

from gateway.shard.delivery import Deliverer
from gateway.shard.group_requests import GroupRequests
from gateway.shard.log_writer import SessionLogWriter
from gateway.shard.memberships import Memberships
from gateway.shard.messages import Delivery
from gateway.shard.numbers import ReservedNumbers
from gateway.shard.session import Session
from gateway.shard.session_assignments import SessionAssignments
from gateway.shard.share_dispatcher import ShareDispatcher
from gateway.shard.share_group import ShareGroup
from gateway.shard.share_member import Assigned, Member
from gateway.shard.share_messages import Assign, Returned, Sender
from gateway.shard.share_senders import ShareSenders
from tests.unit.gateway.cluster.sim.runs import GROUPS_FROM
from tests.unit.gateway.cluster.sim.safeguard import Safeguard
from tests.unit.gateway.cluster.sim.shares import ShareHome

_offer = ShareHome.offer
_write_record = ShareDispatcher._write_record
_returned = ShareDispatcher._returned
_counts = ShareSenders.counts
_assign = Memberships.assign
_send = ShareDispatcher._send
_received = Deliverer.received


def _sends_before_it_is_logged(self: ShareDispatcher, group: ShareGroup, then: Callable[[], None] | None) -> None:
    _write_record(self, group, None)
    if then is not None:
        then()


def _reports_before_it_is_logged(self: Deliverer, session: Session, packet_id: int, reason: int) -> None:
    delivery = session.in_flight.get(packet_id)
    if delivery is not None and delivery.qos == 2:
        self.finish(delivery, "delivered")
    _received(self, session, packet_id, reason)


def _assigns_to_any_session(self: Memberships, message: Assign) -> None:
    session = self._sessions.get(message.client)
    if session is not None:
        message.session = session.incarnation
    _assign(self, message)


def _forgets_early(self: ShareDispatcher, taken: list[Assigned]) -> None:
    for assigned in taken:
        self._open[assigned.client] = {assigned.number: None}
    _send(self, taken)


def _keeps_no_position(self: ShareHome, partition: int, offset: int, message: Any) -> None:
    _offer(self, partition, offset, message)
    self.home.undone[partition].pop(offset, None)


def _recovers_no_assignment(_: ShareDispatcher, group: ShareGroup, record: Any) -> None:
    if group.recover_group(record):
        group.assigned_before = {}


def _goes_to_anyone_on_suspicion(self: ShareDispatcher, group: ShareGroup, member: Member) -> None:
    self._set_capacity(group, member, None)
    open_ones = [a for a in group.assigned.values() if a.client == member.client]
    for assigned in open_ones:
        del self._assigned[assigned.number]
    self._take_back(open_ones)


def _takes_back_earlier_sendings(self: ShareDispatcher, message: Returned) -> None:
    _returned(self, Returned(message.assignments))


def _counts_what_was_written_before(self: ShareSenders, sender: Sender | None, *, is_direct: bool = False) -> bool:
    return _counts(self, sender)


def _asks_as_an_earlier_home(self: GroupRequests) -> int:
    self._asked += 1
    return self._asked


def _nothing(*_: Any) -> None:
    """Is done."""


async def _waits_for_nothing(*_: Any) -> None:
    """Returns at once."""


SHARE_SAFEGUARDS = (
    Safeguard(
        "what a superseded owner says about groups is void",
        ShareSenders,
        "counts",
        lambda *_, **__: True,
        GROUPS_FROM + 6_459_834,
    ),
    Safeguard(
        "what was written before somebody speaks directly is void",
        ShareSenders,
        "counts",
        _counts_what_was_written_before,
        GROUPS_FROM + 1_611_796,
    ),
    Safeguard(
        "only what was sent last is taken back",
        ShareDispatcher,
        "_returned",
        _takes_back_earlier_sendings,
        GROUPS_FROM + 3_553_851,
    ),
    Safeguard(
        "a home speaks to the latest owner, not to an earlier one in its process",
        ShareSenders,
        "highest",
        lambda *_: 0,
        GROUPS_FROM + 4_576_191,
    ),
    Safeguard(
        "an answer to an earlier home of the member is void",
        GroupRequests,
        "_next_request",
        _asks_as_an_earlier_home,
        GROUPS_FROM + 7_796_175,
    ),
    Safeguard(
        "what is open with a lost home is sent again to the next one",
        ShareDispatcher,
        "started",
        _nothing,
        GROUPS_FROM + 4_966_664,
    ),
    Safeguard("a home names its members to the next home of a group", Memberships, "announce", _nothing, GROUPS_FROM),
    Safeguard(
        "an assignment at QoS 2 is logged before it is sent",
        ShareDispatcher,
        "_write_record",
        _sends_before_it_is_logged,
        GROUPS_FROM + 7_237_511,
    ),
    Safeguard(
        "a successor sends the same assignment to the same session",
        ShareDispatcher,
        "recover",
        _recovers_no_assignment,
        GROUPS_FROM + 5_888_960,
    ),
    Safeguard(
        "a session remembers which assignments are over",
        SessionAssignments,
        "is_over",
        lambda *_: False,
        GROUPS_FROM + 4,
    ),
    Safeguard(
        "a session remembers them until the group has forgotten them",
        ShareDispatcher,
        "_send",
        _forgets_early,
        GROUPS_FROM + 1_941_863,
    ),
    Safeguard(
        "an assignment is for one session of a client",
        Memberships,
        "assign",
        _assigns_to_any_session,
        GROUPS_FROM + 4_668_781,
    ),
    Safeguard(
        "a result is logged before it is sent",
        Deliverer,
        "received",
        _reports_before_it_is_logged,
        GROUPS_FROM + 1_560_619,
    ),
    Safeguard(
        "nobody is answered on a connection before it is logged what was said on the one before",
        SessionLogWriter,
        "caught_up",
        _waits_for_nothing,
        GROUPS_FROM + 9_061_279,
    ),
    Safeguard("numbers of assignments are given once", ReservedNumbers, "begin", _nothing, GROUPS_FROM + 3_950_473),
    Safeguard(
        "what a session may have had at QoS 2 goes to nobody else",
        Delivery,
        "may_return",
        property(lambda _: True),
        GROUPS_FROM + 7_170_647,
    ),
    Safeguard(
        "an assignment never returns on suspicion",
        ShareDispatcher,
        "away",
        _goes_to_anyone_on_suspicion,
        GROUPS_FROM + 7_951_271,
    ),
    Safeguard(
        "what waits for a lost connection goes back", Memberships, "_give_back", _nothing, GROUPS_FROM + 2_465_459
    ),
    Safeguard(
        "restart positions cover open assignments", ShareHome, "offer", _keeps_no_position, GROUPS_FROM + 4_409_777
    ),
)
