"""Sends a message on one of the gateway's own topics (:mod:`gateway.shard.system_topics`) to its subscribers here."""

import asyncio
from collections.abc import Iterable
from typing import Final

from gateway.shard.messages import Message
from gateway.shard.offering import wanted
from gateway.shard.shard import Shard
from gateway.shard.subscription import SessionSubscription
from gateway.shard.system_topics import send_system
from gateway.shard.trie import Search

SLICE: Final = 500
"""Subscribers that are served before others have their turn."""


async def publish_locally(shards: Iterable[Shard], message: Message) -> None:
    """Sends to SLICE subscribers at a time: there may be many, and some may leave meanwhile."""
    for shard in shards:
        await _send(shard, message)


async def _send(shard: Shard, message: Message) -> None:
    by_client: dict[str, list[SessionSubscription]] = {}
    found = shard.trie.begin(message.topic, SLICE)
    while isinstance(found, Search):
        await asyncio.sleep(0)
        if found.run(SLICE):
            found = found.found
    for subscription in found:
        by_client.setdefault(subscription.client, []).append(subscription)
    for number, (client, subscriptions) in enumerate(by_client.items(), 1):
        session = shard.sessions.get(client)
        if session is not None:
            present = [s for s in subscriptions if session.subscriptions.get(s.filter) is s]
            for _, (_, retain, identifiers) in wanted(message, present, shard.sessions):
                send_system(session, message, retain, identifiers)
        if number % SLICE == 0:
            await asyncio.sleep(0)
