"""The store's twin in memory: for clients without a file, and for tests. Nothing of it outlives the process."""

from edge.client.store import EXPIRED_MAX, Batch, Recovered, SessionRow, StoredMessage, WaitingRow, new_incarnation


class MemoryStore:
    """Implements :class:`edge.client.store.Store`."""

    def __init__(self, client_id: str) -> None:
        self._session = SessionRow(client_id)
        self._incarnation = new_incarnation()
        self._messages: dict[int, StoredMessage] = {}
        self._released: dict[int, int] = {}
        self._accepted: set[int] = set()
        self._open_ids: dict[int, None] = {}

    def recover(self) -> Recovered:
        messages = list(self._messages.values())
        in_flight = [message for message in messages if message.packet_id]
        return Recovered(
            self._session,
            in_flight,
            list(self._released.items()),
            sorted(self._accepted),
            len(messages) - len(in_flight),
            len(messages),
            sum(message.size for message in messages),
            self._incarnation,
            list(self._open_ids),
        )

    def commit(self, batch: Batch) -> None:
        for sequence, message in batch.added.items():
            self._messages[sequence] = message
        for sequence, packet_id in batch.assigned.items():
            self._messages[sequence].packet_id = packet_id
        self._released.update(batch.released)
        for sequence in batch.removed:
            self._messages.pop(sequence, None)
            self._released.pop(sequence, None)
        for packet_id, is_accepted in batch.inbound.items():
            (self._accepted.add if is_accepted else self._accepted.discard)(packet_id)
        for packet_id, is_open in batch.open_ids.items():
            if is_open:
                self._open_ids.setdefault(packet_id)
            else:
                self._open_ids.pop(packet_id, None)
        if batch.session is not None:
            self._session = batch.session

    def waiting(self, after: int, messages_max: int, size_max: int) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        for sequence, message in self._messages.items():
            if sequence <= after or message.packet_id:
                continue
            size_max -= message.size
            if len(found) == messages_max or (found and size_max < 0):
                break
            found.append(message)
        return found

    def expired(self, now_s: float) -> list[WaitingRow]:
        due = [message for message in self._unsent() if message.expires_s <= now_s]
        return [WaitingRow(one.sequence, one.topic, one.qos, one.size) for one in due[:EXPIRED_MAX]]

    def next_expiry(self) -> float | None:
        return min((message.expires_s for message in self._unsent()), default=None)

    def close(self) -> None:
        pass

    def _unsent(self) -> list[StoredMessage]:
        return [message for message in self._messages.values() if not message.packet_id]
