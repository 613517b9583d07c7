"""What the ledger does with message presence, without Spark: reads `message-presence`, judges claims and publishes what
is known, by the same rules (:mod:`pipelines.presence.custody`). For tests of agents and gateways over processes."""

import contextlib
from collections import defaultdict
from threading import Event, Thread

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from pipelines.presence import custody
from pipelines.presence.custody import AgentReport, Custody, Limits
from schemas.errors import RecordError
from schemas.events import MessagePresenceEvent, decode, encode
from schemas.states import MessagePresenceState
from schemas.topics import NO_GROUP, Topics
from tests.conftest import LocalBroker

PARTITIONS = 2
POLL_S = 0.1
LIMITS = Limits(claim_s=60.0, kept_s=86_400.0, most=100)


class PresenceJudge:
    """`with PresenceJudge(broker, topics) as judge`; `known`: what is known of each message."""

    def __init__(self, broker: LocalBroker, topics: Topics) -> None:
        self._bootstrap, self._topics = broker.bootstrap, topics
        self.known: dict[str, Custody] = defaultdict(Custody)
        self._ends = Event()

    def __enter__(self) -> "PresenceJudge":
        self._thread = Thread(target=self._run, name="presence-judge")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def state(self, message_id: str) -> MessagePresenceState:
        return custody.state_of(message_id, self.known[message_id])

    def _run(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": NO_GROUP, "enable.auto.commit": False})
        producer = Producer({"bootstrap.servers": self._bootstrap})
        consumer.assign([TopicPartition(self._topics.message_presence, one, 0) for one in range(PARTITIONS)])
        while not self._ends.is_set():
            for record in consumer.consume(500, POLL_S):
                if record.error() is None:
                    with contextlib.suppress(RecordError):
                        self._judge(record, producer)
            producer.flush(POLL_S)
        consumer.close()
        producer.flush()

    def _judge(self, record: Message, producer: Producer) -> None:
        told, offset, partition = (
            decode(MessagePresenceEvent, record.value() or b""),
            record.offset(),
            record.partition(),
        )
        assert offset is not None
        assert partition is not None
        said = AgentReport(
            offset,
            record.timestamp()[1],
            told.event,
            told.agent,
            told.at_us,
            told.origin,
            told.peer,
            told.reason,
            told.until_us,
        )
        old = self.known[told.id]
        new = self.known[told.id] = custody.after(old, [said], LIMITS)
        if custody.is_news(old, new):
            value = encode(custody.state_of(told.id, new))
            topic = self._topics.message_presence_state
            producer.produce(topic, value, told.id.encode(), partition=partition)
