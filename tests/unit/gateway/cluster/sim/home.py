"""A toy home: sessions with QoS 1 and 2 both ways, on `sessions` and `ingress`, by the rules of fences.

It has what matters for a change of owner and nothing else. Its records on `sessions`:

| key            | value                                                                                   |
|----------------|-----------------------------------------------------------------------------------------|
| `in/<client>`  | packet ids of QoS 2 messages from the client, complete up to an offset of `ingress`     |
| `out/<client>` | QoS 2 messages to the client that are open, and up to where all others are settled      |
| `pos`          | from where to read `ingress`, and the fences before that                                |
| `barrier`      | nothing: PUBREC waits until it is read back                                             |
| `fence/<epoch>`| a fence                                                                                 |
"""

from collections.abc import Callable
from typing import Any

from gateway.cluster import lease_messages as m
from gateway.cluster.fencing import PartitionFences, SenderFences
from gateway.cluster.read_back import Barriers, ReadBack
from tests.unit.gateway.cluster.sim.outgoing import Outgoing
from tests.unit.gateway.cluster.sim.session import Message, Session
from tests.unit.gateway.cluster.sim.world import Cursor, Entry, TopicPartition


class Home:
    def __init__(self, process: Any, shard: int, epoch: int) -> None:
        self.process = process
        self.world = process.world
        self.site = process.site
        self.shard = shard
        self.epoch = epoch
        self.is_over = False
        self.is_serving = False
        self.is_freezing = False
        self.fences = PartitionFences()
        self.senders = SenderFences()
        self.read_back: ReadBack[Callable[[], None]] = ReadBack(epoch)
        self.barriers: Barriers[Callable[[], None]] = Barriers()
        self.sessions = {client: Session(client) for client in self.site.clients_of(shard)}
        self.positions: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self.undone: dict[int, dict[int, None]] = {p: {} for p in range(self.site.partitions)}
        self.read_to: dict[int, int] = {}
        self._written_positions: Any = None
        self._fenced_ingress: set[int] = set()
        self._cursors: list[Cursor] = []
        self._arriving: list[Any] = []
        self._is_state_read = False
        self.outgoing = Outgoing(self)
        self.shares = self.site.make_shares(self)

    # -- its life ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Fences first; those on `ingress` once that on `sessions` is stored."""
        self._cursors.append(Cursor(self.process, ("sessions", self.shard), 0, self._session_read))
        self.process.produce(
            ("sessions", self.shard),
            b"fence/%d" % self.epoch,
            self.process.me,
            self.epoch,
            True,
            lambda _: self.fence_ingress(),
        )

    def fence_ingress(self) -> None:
        if not self.is_over:
            for partition in range(self.site.partitions):
                self.process.produce(("ingress", partition), b"", ((self.shard, self.epoch),), self.epoch, True)

    def abandon(self) -> None:
        """It is not this process's any more: it sends and writes nothing."""
        self.is_over, self.is_serving = True, False
        for cursor in self._cursors:
            if not self.process.is_over:
                cursor.close()
        self._cursors = []
        self._close_connections()
        self.shares.end()

    def freeze(self) -> None:
        self.is_freezing, self.is_serving = True, False
        self._close_connections()
        self.shares.freeze()
        self._write(b"pos", self._positions(), self._frozen)

    def _frozen(self) -> None:
        self.shares.end()
        self.process.tell(m.Frozen(self.shard, self.epoch))

    def _close_connections(self) -> None:
        """Also of those that are still to be answered."""
        arriving, self._arriving = self._arriving, []
        connected = [session.link for session in self.sessions.values() if session.link is not None]
        for link in (*arriving, *connected):
            link.close_from_home()

    def tick(self) -> None:
        if self.is_serving:
            positions = self._positions()
            if positions != self._written_positions:
                self._written_positions = positions
                self._write(b"pos", positions)
            self.shares.tick()
            for epoch in self.fences.removable():
                self.fences.fence_removed(epoch)
                self.process.produce(("sessions", self.shard), b"fence/%d" % epoch, None, self.epoch)

    def _positions(self) -> Any:
        """From where the next home has to read, and the fences before that."""
        positions = {p: min(self.undone[p], default=self.read_to[p]) for p in self.read_to}
        starts = dict(positions)
        for session in self.sessions.values():
            p = self.site.partition_of(session.client)
            starts[p] = min(starts[p], session.covered)
        return positions, starts, self.senders.seen(starts)

    # -- `sessions` ----------------------------------------------------------------------------------------------------

    def _write(self, key: bytes, value: Any, then: Callable[[], None] | None = None) -> None:
        """Writes a record; `then` runs once it is read back."""
        stored = None if then is None else lambda offset: self._act(self.read_back.stored(offset, then))
        self.process.produce(("sessions", self.shard), key, value, self.epoch, False, stored)

    def _act(self, due: list[Callable[[], None]]) -> None:
        for promise in due:
            if not self.is_over:
                promise()

    def _session_read(self, entry: Entry) -> None:
        if self.is_over:
            return
        if entry.is_fence:
            self._fence_read(entry)
            return
        if self.fences.read(entry.key, entry.epoch):
            if not self._is_state_read:
                self._restore(entry.key, entry.value)
                self.shares.read(entry)
        elif self.is_serving:
            self._mend()
        self._act(self.read_back.read(entry.offset))

    def _fence_read(self, entry: Entry) -> None:
        epoch, writer = entry.epoch, entry.value
        self.process.tell(m.FenceRead(self.shard, epoch))
        counts = self.fences.read_fence(epoch)
        if (epoch, writer) == (self.epoch, self.process.me):
            if not counts:
                self.process.tell(m.Outranked(self.shard, self.epoch))
            else:
                self._act(self.read_back.fence(entry.offset, epoch))
                self._state_read()
        elif self._is_state_read:
            self._act(self.read_back.fence(entry.offset, epoch))
            if self.read_back.is_over:
                self.abandon()

    def _restore(self, key: bytes, value: Any) -> None:
        kind, _, name = key.decode().partition("/")
        if kind == "pos":
            self.positions, self._starts, seen = value
            self.senders = SenderFences(seen)
        elif kind == "in":
            session = self.sessions[name]
            pids, session.until = value
            session.received, session.covered = dict.fromkeys(pids, True), session.until
        elif kind == "out":
            session = self.sessions[name]
            opened, session.settled = value
            session.open, session.settled = list(opened), dict(session.settled)
            session.durable = {(item.pid, item.place) for item in opened}
            session.released = {(item.pid, item.place) for item in opened if item.is_released}

    def _mend(self) -> None:
        for key in self.fences.unmended:
            if self.shares.owns(key):
                self.shares.mend(key)
                continue
            kind, _, name = key.decode().partition("/")
            value: Any = ()
            if kind == "pos":
                value = self._positions()
            elif kind == "in":
                value = self.sessions[name].in_record()
            elif kind == "out":
                value = self.sessions[name].out_record()
            elif kind == "fence":
                value = None
            self._write(key, value)

    # -- `ingress` -----------------------------------------------------------------------------------------------------

    def _state_read(self) -> None:
        """Everything before the fence on `sessions` is known; now `ingress` up to the fences there."""
        self._is_state_read = True
        self.shares.recover()
        for partition in range(self.site.partitions):
            start = self._starts.get(partition, 0)
            self.read_to[partition] = start
            take = lambda entry, partition=partition: self._ingress_read(partition, entry)  # noqa: E731
            self.read_on(("ingress", partition), start, take)

    def read_on(self, tp: TopicPartition, start: int, take: Callable[[Entry], None]) -> None:
        """Reads a partition for as long as the home is there."""
        self._cursors.append(Cursor(self.process, tp, start, take))

    def _ingress_read(self, partition: int, entry: Entry) -> None:
        if self.is_over:
            return
        self.read_to[partition] = entry.offset + 1
        if entry.is_fence:
            self.senders.read_fence(partition, entry.offset, entry.value)
            for shard, epoch in entry.value:
                if (shard, epoch) == (self.shard, self.epoch):
                    self._fenced_ingress.add(partition)
                    for session in self.sessions.values():
                        if self.site.partition_of(session.client) == partition:
                            session.until = max(session.until, entry.offset)
            if len(self._fenced_ingress) == self.site.partitions and not self.is_serving and not self.is_freezing:
                self._serve()
            return
        message: Message = entry.value
        sender_shard = self.site.shard_of(message.sender)
        if self.senders.is_dropped(partition, entry.offset, sender_shard, entry.epoch, message.qos, False):
            return
        if sender_shard == self.shard and partition not in self._fenced_ingress and message.qos == 2:
            session = self.sessions[message.sender]
            if entry.offset >= session.until:
                session.received[message.pid] = True
        if entry.offset < self.positions.get(partition, 0):
            return
        session = self.sessions.get(message.recipient)  # type: ignore[assignment]
        if session is None:
            self.shares.offer(partition, entry.offset, message)
            return
        if message.qos == 2 and entry.offset <= session.settled.get(partition, -1):
            return
        self.undone[partition][entry.offset] = None
        session.queue.append((partition, entry.offset, message))
        if self.is_serving:
            self.outgoing.pump(session)

    def _serve(self) -> None:
        self._mend()
        self.is_serving = True
        self.shares.begin()
        self.process.tell(m.Fenced(self.shard, self.epoch))

    # -- the connection ------------------------------------------------------------------------------------------------

    def attach(self, link: Any, client: str) -> None:
        """A client has connected. As in the gateway, CONNACK waits for the session log: a home that has lost its shard,
        and does not know it yet, answers nobody who comes."""
        session = self.sessions.get(client)
        if session is None:
            self.shares.attach(link, client)
            return
        if session.link is not None:
            session.link.close_from_home()
        self._arriving.append(link)
        self._write(b"barrier", (), lambda: self._connected(session, link))

    def _connected(self, session: Session, link: Any) -> None:
        """What was in flight is sent again, in order."""
        if link not in self._arriving:
            return
        self._arriving.remove(link)
        if session.link is not None:
            session.link.close_from_home()
        session.link = link
        self._send(session, "connected", 0, None)
        back = sorted(session.sent.values(), key=lambda item: (item[0], item[1]))
        session.sent = {}
        session.queue.extendleft(reversed(back))
        for item in list(session.open):
            earlier = [q for q in session.queue if q[0] == item.place[0] and q[1] < item.place[1]]
            for queued in earlier:
                session.queue.remove(queued)
                self.outgoing.send_qos1(session, queued)
            self.outgoing.send_open(session, item)
        self.outgoing.pump(session)

    def detach(self, client: str, link: Any) -> None:
        session = self.sessions.get(client)
        if session is None:
            self.shares.detach(client, link)
        elif session.link is link:
            session.link = None
        elif link in self._arriving:
            self._arriving.remove(link)

    def _send(self, session: Session, kind: str, pid: int, message: Message | None) -> None:
        link = session.link
        if link is not None:
            self.process.send_to_client(self, lambda: link.to_client(kind, pid, message))

    def receive(self, client: str, kind: str, pid: int, message: Message | None) -> None:
        """A packet of a client."""
        if not self.is_serving:
            return
        session = self.sessions.get(client)
        if session is None:
            self.shares.receive(client, kind, pid)
            return
        match kind:
            case "publish":
                assert message is not None
                self._published(session, message)
            case "pubrel":
                self._release(session, pid)
            case "puback":
                item = session.sent.pop(pid, None)
                if item is not None:
                    self.undone[item[0]].pop(item[1], None)
            case "pubrec":
                self.outgoing.received(session, pid)
            case "pubcomp":
                session.open = [item for item in session.open if item.pid != pid or not item.is_released]
                self._write(b"out/" + client.encode(), session.out_record())
        self.outgoing.pump(session)

    # -- from the client -----------------------------------------------------------------------------------------------

    def _published(self, session: Session, message: Message) -> None:
        partition = self.site.partition_of(session.client)
        tp = ("ingress", partition)
        if message.qos == 1:
            link = (
                session.link
            )  # the answer belongs to this connection: on another one the packet id is another message's
            stored = lambda _: session.link is link and self._send(session, "puback", message.pid, message)  # noqa: E731
            self.process.produce(tp, b"", message, self.epoch, False, stored)
        elif message.pid not in session.received:
            session.received[message.pid] = False
            self.process.produce(tp, b"", message, self.epoch, False, lambda at: self.stored(session, message, at))
        elif session.received[message.pid]:
            self._send(session, "pubrec", message.pid, message)

    def stored(self, session: Session, message: Message, offset: int) -> None:
        """A message at QoS 2 is on `ingress`: PUBREC waits for a barrier."""
        if self.is_over:
            return

        def promise() -> None:
            if message.pid in session.received:
                session.received[message.pid] = True
                session.until = max(session.until, offset + 1)
                self._send(session, "pubrec", message.pid, message)

        self.after_barrier(promise)

    def after_barrier(self, action: Callable[[], None]) -> None:
        """Runs `action` once it is known that the shard was this home's until now."""
        if self.barriers.add(action):
            self.world.after(0.001, lambda: self.process.enter(self._write_barrier))

    def _write_barrier(self) -> None:
        promises = self.barriers.take()
        if not self.is_over:
            self._write(b"barrier", (), lambda: self._act(promises))

    def _release(self, session: Session, pid: int) -> None:
        if pid in session.releasing:
            return
        if pid not in session.received:
            self._send(session, "pubcomp", pid, None)
            return
        del session.received[pid]
        session.releasing.add(pid)
        until = session.until

        def promise() -> None:
            session.releasing.discard(pid)
            session.covered = until
            self._send(session, "pubcomp", pid, None)

        self._write(b"in/" + session.client.encode(), session.in_record(), promise)
