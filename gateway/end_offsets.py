"""Where partitions end: questions to Kafka by a consumer of their own.

The consumer that reads for homes stops while they cannot take more, and answers nothing meanwhile. So what a SUBSCRIBE
or a change of owner waits for is asked for here. Questions about a topic that come while an answer is on its way share
the next one: an answer that was asked for earlier may be out of date for them.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException

from gateway.blocking import in_daemon_thread
from gateway.errors import BusError
from gateway.topic_reader import end_offsets
from schemas.topics import NO_GROUP

_ANSWER_S = 10.0

_Question = tuple[str, int]


class EndOffsets:
    """Answers on the loop; `settings` are those of the Kafka client. `close` ends it."""

    def __init__(self, settings: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._loop = loop
        self._is_closed = False
        self._consumer: Consumer | None = None
        self._next: dict[_Question, asyncio.Future[dict[int, int]]] = {}
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def of(self, topic: str, partitions: int) -> dict[int, int]:
        """The offset after the last record, by partition. Raises BusError."""
        question = (topic, partitions)
        answer = self._next.get(question)
        if answer is None:
            answer = self._next[question] = self._loop.create_future()
            task = self._loop.create_task(self._ask(question, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return dict(await asyncio.shield(answer))

    async def close(self, timeout_s: float) -> None:
        """Questions that are on their way are still answered, if that takes no longer than `timeout_s`."""
        self._is_closed = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        if self._consumer is not None and not self._tasks:
            await in_daemon_thread(self._consumer.close)

    async def _ask(self, question: _Question, answer: asyncio.Future[dict[int, int]]) -> None:
        async with self._lock:
            del self._next[question]
            if self._is_closed:
                _fail(answer, "Kafka is not asked any more")
                return
            try:
                answer.set_result(await in_daemon_thread(self._get, *question))
            except KafkaException as error:
                _fail(answer, f"Kafka does not answer: {error.args[0].str()}")

    def _get(self, topic: str, partitions: int) -> dict[int, int]:
        if self._consumer is None:
            self._consumer = Consumer(dict(self._settings) | {"group.id": NO_GROUP, "enable.auto.commit": False})
        return end_offsets(self._consumer, topic, range(partitions), _ANSWER_S)


def _fail(answer: asyncio.Future[dict[int, int]], reason: str) -> None:
    answer.set_exception(BusError(reason))
    answer.exception()  # there may be nobody left to look at it
