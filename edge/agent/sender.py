"""How mails and files leave the agent: with an outbox and a connection to the platform, or over the mesh (M1)."""

from collections.abc import Sequence
from typing import Final, Protocol

from edge.client.client import Client

QOS: Final = 1
"""The receiver recognises repetitions by their id, so QoS 2 would only cost time."""


class Sender(Protocol):
    """What takes a message to an agent's inbox (`@client-id`) or to a topic."""

    async def send(
        self, destination: str, payload: bytes, content_type: str, properties: Sequence[tuple[str, str]]
    ) -> None:
        """Returns once the message is on disk; `properties` are those of its envelope. Raises NotAccepted."""
        ...


class ClientSender:
    """A client with its outbox."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def send(
        self, destination: str, payload: bytes, content_type: str, properties: Sequence[tuple[str, str]]
    ) -> None:
        await self._client.publish(
            destination, payload, qos=QOS, content_type=content_type, user_properties=list(properties)
        )
