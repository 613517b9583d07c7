"""The life of a session: whose it is, its connections, its will, and what the session log has (MQTT 5.0, 3.1; G8, R12).

Pure: no clock, no I/O. Only this file sets the fields of :class:`SessionLife`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from gateway.shard.arrivals import Arrival
from gateway.shard.link import Link
from gateway.shard.rules import EVERYTHING, ClientRules
from mqtt.limits import PACKET_ID_MAX
from schemas.envelope import Incarnation
from schemas.session_log import SessionOpened, WillRecord

Action = Callable[[], None]


@dataclass(slots=True, weakref_slot=True, eq=False)
class SessionLife:
    """`persistent` sessions outlive their connection and are written to the session log. `born_us` (µs since the epoch)
    and `shard_epoch` tell a session from others of its client; `ended` once it is over, whoever still holds it.

    `peer` (`address:port`) and `protocol` are those of the last connection since the gateway was started; `epoch` is
    the number of that connection, `events` how many presence events it has had. `wills_on_way` are due and not in Kafka
    yet; `replaced_will` was not due when the present connection began. `in_log`: the session log has a record of the
    session; `is_logging` while one of its windows is on the way.
    """

    client: str
    shard: int
    since: int
    born_us: int = 0
    shard_epoch: int = 0
    ended: bool = False
    wills_on_way: list[WillRecord] = field(default_factory=list)
    expiry_s: int = 0
    disconnected_ms: int | None = None
    will: WillRecord | None = None
    replaced_will: WillRecord | None = None
    link: Link | None = None
    rules: ClientRules = EVERYTHING
    peer: str = ""
    protocol: str = ""
    user: str = ""
    receive_maximum: int = PACKET_ID_MAX
    epoch: int = 0
    events: int = 0
    in_log: bool = False
    _will_waiters: list[Action] = field(default_factory=list)
    is_logging: bool = False
    _after_log: list[Action] = field(default_factory=list)

    @property
    def spool_key(self) -> str:
        """Its name in the spool: another session of the same client has another."""
        return f"{self.client}\0{self.born_us}"

    @property
    def incarnation(self) -> Incarnation:
        """Which session of its client it is."""
        return Incarnation(self.shard_epoch, self.born_us)

    @property
    def persistent(self) -> bool:
        return self.expiry_s > 0

    @property
    def logged(self) -> bool:
        """Whether the session log holds it: it outlives its connection, or has a will to be published after a crash."""
        return self.persistent or self.will is not None

    # -- connections ---------------------------------------------------------------------------------------------------

    def admit(self, arrival: Arrival, epoch: int) -> None:
        """A client has come for it: its connection, number `epoch`, begins once the session log knows."""
        self.expiry_s, self.disconnected_ms = arrival.expiry_s, None
        self.user, self.epoch, self.events = arrival.rules.user, epoch, 0
        self.receive_maximum = min(arrival.receive_maximum, PACKET_ID_MAX)
        self.replaced_will = self.will
        self.will = arrival.will and msgspec.structs.replace(arrival.will, of_us=epoch)

    def connecting(self, arrival: Arrival) -> None:
        """The session log knows: who has come, and what that client may do."""
        self.peer, self.protocol, self.rules = arrival.peer, arrival.protocol, arrival.rules

    def connected(self, link: Link) -> None:
        """Deliveries may begin."""
        self.link = link

    def disconnected(self, now_ms: int, expiry_s: int | None, *, keeps_will: bool, was_accepted: bool = True) -> None:
        """The connection is gone; `expiry_s` is what DISCONNECT asked for, if it did. Before CONNACK the will is still
        that of the connection before."""
        self.link, self.disconnected_ms = None, now_ms
        self.expiry_s = self.expiry_s if expiry_s is None else expiry_s
        self.will = self.replaced_will if not was_accepted else self.will if keeps_will else None

    def moved(self) -> None:
        """The connection goes on at the next home: for this one it is over, and nothing else is."""
        self.link = None

    def moved_in(
        self, link: Link, rules: ClientRules, peer: str, protocol: str, receive_maximum: int, epoch: int
    ) -> None:
        """Its connection, which began at another gateway, goes on here as number `epoch`."""
        self.link, self.rules, self.peer, self.protocol = link, rules, peer, protocol
        self.receive_maximum, self.epoch, self.events = min(receive_maximum, PACKET_ID_MAX), epoch, 0

    def next_event(self) -> int:
        """The number of a presence event of its connection."""
        number, self.events = self.events, self.events + 1
        return number

    def recover_life(self, record: SessionOpened) -> None:
        """Takes up what the session log has of it."""
        self.expiry_s, self.will, self.in_log = record.expiry_s, record.will, True
        self.disconnected_ms, self.user = record.disconnected_ms, record.user

    def lost_with_gateway(self, epoch: int, now_ms: int) -> None:
        """The session log says that it was connected: its connection, number `epoch` now, ended with the gateway."""
        self.epoch, self.disconnected_ms = epoch, now_ms

    def expire(self) -> None:
        """Its time is over."""
        self.expiry_s = 0

    def end(self) -> None:
        """The session is over."""
        self.ended = True

    # -- the will ------------------------------------------------------------------------------------------------------

    def take_will(self) -> WillRecord | None:
        """The will, which is due now and on its way to Kafka."""
        will, self.will = self.will, None
        if will is not None:
            self.wills_on_way.append(will)
        return will

    def will_stored(self, will: WillRecord) -> None:
        """Kafka has it."""
        self.wills_on_way.remove(will)

    def after_wills(self, action: Action) -> None:
        """Has `action` called when Kafka has one of its wills more."""
        self._will_waiters.append(action)

    def take_will_waiters(self) -> list[Action]:
        """What waited for a will."""
        waiting, self._will_waiters = self._will_waiters, []
        return waiting

    # -- the session log -----------------------------------------------------------------------------------------------

    def note_in_log(self, *, is_there: bool) -> None:
        """The session log gets a record of it, or a tombstone; of what has ended it gets no record."""
        self.in_log = is_there and (self.in_log or not self.ended)

    def after_log(self, action: Action) -> bool:
        """Has `action` done after the next record that is begun; whether that can be begun now."""
        self._after_log.append(action)
        return not self.is_logging

    def begin_record(self) -> list[Action]:
        """A record is begun: what is to be done when it is stored."""
        actions, self._after_log, self.is_logging = self._after_log, [], True
        return actions

    def end_record(self) -> None:
        """The record is stored."""
        self.is_logging = False

    @property
    def is_record_due(self) -> bool:
        """Whether another record is to be begun."""
        return bool(self._after_log) and not self.is_logging
