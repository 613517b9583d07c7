"""What presence events lead to: states on `presence-state`, messages to `$presence/<client>`, and on `presence` the
ends of connections that a lost gateway could not report (R12)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pipelines.kafka.writer import KafkaWriter, Out
from pipelines.presence import lost_connections
from pipelines.presence.attachments import is_void, revised, state_of
from pipelines.presence.client_presence import CLIENT, Changed, begun, fold, last_used_ms, signs, state_format, ticks
from pipelines.presence.liveness import Liveness
from pipelines.sources import Kafka, topic_now
from pipelines.storage.keyed_states import KeyedStates
from pipelines.storage.local_database import file_of
from schemas.envelope import NO_PROPERTIES, RETAIN_FLAG, Meta, ingress_headers
from schemas.events import PresenceEvent, decode_good, encode
from schemas.identity import derived_message_id, partition_of
from schemas.origin import PRESENCE_ROOT
from schemas.presence_settings import PresenceSettings
from schemas.presence_topics import presence_payload, presence_topic
from schemas.states import GATEWAY_MARK, GatewayState, PresenceState
from schemas.topics import Topics

QOS = 1


class PresenceSink:
    """Takes the batches of :func:`pipelines.presence.client_presence.reported`: a callback for `foreachBatch`. The
    state of each client is in `directory`.

    A batch usually publishes few records: one for each client that has connected or disconnected. When a gateway is
    found gone, or comes back, it is one for each of the gateway's clients, which are looked up on `presence-state`. No
    client has a timer.

    Contract: at least once on `presence`, before the states that go with the ends; a repeated batch writes the same
    ends again, with the same numbers. At least once on `presence-state`, where only the latest record of a key counts,
    clients before gateways. Exactly once on `ingress`: a message's id is derived from query, batch and client, and the
    first batch after a start, which may be a repeated one, skips messages that are already there. Records on
    `presence-state` that cannot be read are skipped. The state of a client that has been offline for `kept_s` is ended
    there, at least once.

    `clock` gives seconds since the epoch. If it is behind the broker's clock, the broker's counts; otherwise messages
    would expire before they are sent.
    """

    def __init__(
        self,
        kafka: Kafka,
        writer: KafkaWriter,
        topics: Topics,
        partitions: int,
        settings: PresenceSettings,
        clock: Callable[[], float],
        directory: Path,
    ) -> None:
        self._kafka = kafka
        self._topics = topics
        self._partitions = partitions
        self._settings = settings
        self._clock = clock
        self._writer = writer
        self._liveness: Liveness | None = None
        self._topic_now: DataFrame | None = None
        self._fold = partial(fold, settings.attachments)
        self._known = KeyedStates(file_of(directory, "presence_state"), settings.kept_s, self._begun)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        tell = partial(self._tell, batch.sparkSession)
        self._known.take(
            batch, batch_id, "name", self._fold, tell, self._end, self._last_used_ms, lambda row: row.kind == CLIENT
        )

    def _tell(self, spark: SparkSession, rows: list[Row], changed: list[Changed], batch: str) -> None:
        if not rows:
            return
        liveness, is_first = self._liveness, self._liveness is None
        if liveness is None:
            timeout_ms, beat_ms = (int(of * 1000) for of in (self._settings.timeout_s, self._settings.heartbeat_s))
            liveness = Liveness(timeout_ms, beat_ms, self._published_gateways(spark))
        before = dict(liveness.gateways)
        gateways = self._judged(liveness, rows, batch)
        revisions = self._revisions(spark, changed, liveness, gateways)
        states = [state_of(one.client, one.known, liveness.gateways) for one in changed]
        states += [state for _, state in revisions]
        found = [event for one in changed for event in _ends_of(one, before, liveness.gateways)]
        found += [
            event
            for published, state in revisions
            for event in lost_connections.revised(published, state, liveness.gateways)
        ]
        if found:
            self._writer.write(self._event_record(event) for event in found)
        if self._settings.publish and states:
            there = self._message_ids(min(row.appended_ms for row in rows)) if is_first else set()
            now = max(self._clock(), max(row.appended_ms for row in rows) / 1000)
            self._writer.write(self._messages(states, batch, there, now))
        elif is_first and not self._settings.publish:
            self._writer.write(self._retained_no_more(spark))
        self._writer.write(self._client_record(state) for state in states)
        self._writer.write(self._gateway_record(state) for state in gateways)
        self._liveness = liveness

    def _judged(self, liveness: Liveness, rows: list[Row], batch: str) -> list[GatewayState]:
        """The states of gateways that are new. A batch that is repeated by another process has the same ones: that
        process does not know how long a gateway has been silent, and the ends are numbered by the time of the
        judgement."""
        found = liveness.judge(signs(rows), ticks(rows), self._partitions)
        decision = self._known.decided(batch)
        if decision is not None:
            found = msgspec.json.decode(decision, type=list[GatewayState])
            liveness.adopt(found)
        elif found:
            self._known.decide(batch, msgspec.json.encode(found))
        return found

    def _revisions(
        self, spark: SparkSession, changed: Iterable[Changed], liveness: Liveness, gateways: Iterable[GatewayState]
    ) -> list[tuple[PresenceState, PresenceState]]:
        """For clients without events whose gateway has changed: the published state and the new one."""
        clients, names = {one.client for one in changed}, [gateway.gateway for gateway in gateways]
        found = []
        for published in self._published_clients(spark, names) if names else ():
            state = revised(published, liveness.gateways)
            if published.client not in clients and state != published:
                found.append((published, state))
        return found

    def _messages(self, states: Iterable[PresenceState], batch: str, there: set[bytes], now: float) -> Iterator[Out]:
        """Messages to `retained` and `ingress`, for each client in this order, so that a subscriber that finds a
        message on `retained` gets it only once.

        Only the message on its way to subscribers expires. The retained one is valid as long as the client is online.
        """
        expires_ms = int((now + self._settings.message_expiry_s) * 1000)
        for state in states:
            message_id = derived_message_id(f"{PRESENCE_ROOT}/{state.client}", batch)
            meta = Meta(QOS, RETAIN_FLAG if state.online else "", None, int(now * 1e6), None)
            key, payload = presence_topic(state.client).encode(), msgspec.json.encode(presence_payload(state))
            headers = ingress_headers(message_id, PRESENCE_ROOT, meta, NO_PROPERTIES)
            yield Out(self._topics.retained, 0, key, payload if state.online else None, headers)
            if message_id.encode() not in there:
                partition = partition_of(state.client, self._partitions)
                meta = meta._replace(expires=expires_ms)
                headers = ingress_headers(message_id, PRESENCE_ROOT, meta, NO_PROPERTIES)
                yield Out(self._topics.ingress, partition, key, payload, headers)

    def _retained_no_more(self, spark: SparkSession) -> Iterator[Out]:
        """Clears what was retained while presence was published: the messages of all clients published as online."""
        for row in self._published_states(spark).where("record.client.online").toLocalIterator():
            yield Out(self._topics.retained, 0, presence_topic(row.record.client.client).encode(), None)

    def _end(self, clients: list[str]) -> None:
        """Ends the states of clients that have been offline for long."""
        self._writer.write(
            Out(self._topics.presence_state, partition_of(client, self._partitions), client.encode(), None)
            for client in clients
        )

    def _last_used_ms(self, _client: str, state: bytes, now_ms: int) -> int:
        return now_ms if self._liveness is None else last_used_ms(self._liveness.gateways, state, now_ms)

    def _message_ids(self, since_ms: int) -> set[bytes]:
        """The ids of presence messages on `ingress` that were appended at `since_ms` or later. By the broker's clock, a
        message is later than the events it reports."""
        return set(self._writer.ids_since(self._topics.ingress, self._partitions, since_ms, PRESENCE_ROOT))

    def _event_record(self, event: PresenceEvent) -> Out:
        partition = partition_of(event.client, self._partitions)
        return Out(self._topics.presence, partition, event.kafka_key.encode(), encode(event))

    def _client_record(self, state: PresenceState) -> Out:
        partition = partition_of(state.client, self._partitions)
        return Out(self._topics.presence_state, partition, state.client.encode(), encode(state))

    def _gateway_record(self, state: GatewayState) -> Out:
        partition = partition_of(state.gateway, self._partitions)
        return Out(self._topics.presence_state, partition, f"{GATEWAY_MARK}{state.gateway}".encode(), encode(state))

    def _begun(self, spark: SparkSession) -> Iterator[tuple[str, bytes, int]]:
        for row in self._published_states(spark).where("record.client IS NOT NULL").toLocalIterator():
            state = begun(bytes(row.value))
            if state is not None:
                yield row.record.client.client, state, row.appended_ms

    def _published_gateways(self, spark: SparkSession) -> list[GatewayState]:
        found = (
            decode_good(GatewayState, bytes(row.value))
            for row in self._published_states(spark).where("record.gateway IS NOT NULL").collect()
        )
        return [state for state in found if state is not None]

    def _published_clients(self, spark: SparkSession, gateways: list[str]) -> Iterator[PresenceState]:
        """The clients that have attachments at any of the gateways."""
        at_gateways = F.arrays_overlap("record.client.attachments.gateway", F.array(*map(F.lit, gateways)))
        for row in self._published_states(spark).where(at_gateways).toLocalIterator():
            state = decode_good(PresenceState, bytes(row.value))
            if state is not None:
                yield state

    def _published_states(self, spark: SparkSession) -> DataFrame:
        """The contents of `presence-state` at the time of reading. The plan is kept, because making it takes longer
        than running it."""
        if self._topic_now is None:
            self._topic_now = topic_now(spark, self._kafka, self._topics.presence_state, state_format())
        return self._topic_now


def _ends_of(
    one: Changed, before: Mapping[str, GatewayState], gateways: Mapping[str, GatewayState]
) -> list[PresenceEvent]:
    """The events to be added for a client that has changed; `before` are the gateways before the batch."""
    unsaid = [
        lost_connections.lost(one.client, last, at_us)
        for last, at_us in one.superseded
        if not is_void(last.gateway, last.boot, before)
    ]
    return [*unsaid, *lost_connections.of_gateways(one.client, one.before, one.known, before, gateways)]
