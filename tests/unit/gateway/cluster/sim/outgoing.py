"""What a toy home sends to clients: QoS 1 until PUBACK, QoS 2 by records that are read back first."""

from typing import Any

from tests.unit.gateway.cluster.sim.session import PACKET_IDS, WINDOW, Message, Open, Session


class Outgoing:
    def __init__(self, home: Any) -> None:
        self._home = home

    def pump(self, session: Session) -> None:
        while session.queue and session.link is not None and session.waits_for is None and self._home.is_serving:
            partition, offset, message = session.queue[0]
            if message.qos == 1:
                if len(session.sent) >= 2 * WINDOW:
                    return
                self.send_qos1(session, session.queue.popleft())
                continue
            free = [pid for pid in PACKET_IDS if all(pid != item.pid for item in session.open)]
            if len(session.open) >= WINDOW:
                return
            session.queue.popleft()
            item = Open(free[0], (partition, offset), message, False)
            session.open.append(item)
            session.settled[partition] = offset
            session.waits_for = item.pid
            self._home._write(
                b"out/" + session.client.encode(), session.out_record(), lambda item=item: self._opened(session, item)
            )

    def _opened(self, session: Session, item: Open) -> None:
        """The exchange is durable: PUBLISH may be sent."""
        session.waits_for = None
        session.durable.add((item.pid, item.place))
        self._home.undone[item.place[0]].pop(item.place[1], None)
        self.send_open(session, item)
        self.pump(session)

    def send_open(self, session: Session, item: Open) -> None:
        if (item.pid, item.place) in session.released:
            self._home._send(session, "pubrel", item.pid, None)
        elif (item.pid, item.place) in session.durable and not item.is_released:
            self._home._send(session, "publish", item.pid, item.message)

    def send_qos1(self, session: Session, item: tuple[int, int, Message]) -> None:
        session.next_pid += 1
        session.sent[session.next_pid] = item
        self._home._send(session, "publish", session.next_pid, item[2])

    def received(self, session: Session, pid: int) -> None:
        at = next((at for at, item in enumerate(session.open) if item.pid == pid), None)
        if at is None:
            return
        item = session.open[at]
        if not item.is_released:
            session.open[at] = item = item._replace(is_released=True)
            self._home._write(
                b"out/" + session.client.encode(), session.out_record(), lambda: self._let_go(session, item)
            )
        elif (item.pid, item.place) in session.released:
            self._home._send(session, "pubrel", pid, None)

    def _let_go(self, session: Session, item: Open) -> None:
        session.released.add((item.pid, item.place))
        self._home._send(session, "pubrel", item.pid, None)
