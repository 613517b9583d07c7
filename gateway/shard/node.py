"""What the homes of all shards of one process share: the bus, the clock, and what is the gateway's, not a shard's."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import Histogram

from gateway import durations
from gateway.broker_clock import BrokerClock
from gateway.bus import Bus
from gateway.counts import Counts
from gateway.shard.hold import Hold
from gateway.shard.message_presence import MessagePresence
from gateway.shard.numbers import ProcessNumbers
from gateway.shard.outage import Unspooled
from gateway.shard.progress import ProgressReporter
from gateway.shard.publishes import PublishesInFlight
from gateway.shard.ready import ReadySessions
from gateway.shard.retained import RetainedMessages
from gateway.shard.sessions_reader import SessionsReader
from gateway.shard.system_topics import SystemTopics
from gateway.shard.work import Work
from schemas.settings import Settings
from schemas.topics import Topics


@dataclass
class Node:
    """`clock` gives seconds since the epoch; `counts` are what the metrics show; `stopping` is set when the gateway
    stops; `on_fatal` ends the process.

    The other fields own what they hold: they change it themselves, and nobody else does.
    """

    settings: Settings
    topics: Topics
    bus: Bus
    clock: Callable[[], float]
    reporter: ProgressReporter
    retained: RetainedMessages
    message_presence: MessagePresence
    on_fatal: Callable[[Exception], None]
    counts: Counts[str] = field(default_factory=Counts)
    numbers: ProcessNumbers = field(default_factory=ProcessNumbers)
    publishes: PublishesInFlight = field(default_factory=PublishesInFlight)
    unspooled: Unspooled = field(default_factory=Unspooled)
    hold: Hold = field(default_factory=Hold)
    ready: ReadySessions = field(init=False)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    system: SystemTopics = field(default_factory=SystemTopics)
    work: Work = field(default_factory=Work)
    sessions_reader: SessionsReader = field(init=False)
    checkpoint_seconds: Histogram = field(default_factory=durations.checkpoint)
    broker_clock: BrokerClock = field(init=False)

    def __post_init__(self) -> None:
        self.ready = ReadySessions(self.hold)
        self.sessions_reader = SessionsReader(self.bus, self.topics.sessions)
        self.broker_clock = BrokerClock(self.clock)
