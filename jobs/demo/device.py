"""One MQTT client of the demo: it performs its actions one after the other."""

import asyncio
import json
from collections import deque
from collections.abc import Callable

from edge.errors import ConnectRefused, MqttClientError
from edge.hooks import Hooks
from edge.link import Address
from edge.mqtt_client import MqttClient
from edge.reconnect import FullJitter, StayConnected
from jobs.demo.errors import DemoError
from jobs.demo.expectations import Account
from jobs.demo.plan import Action, Connect, Disconnect, Member, Publish, Subscribe
from mqtt import codes, packets
from mqtt.client_events import Closed, EndedBy

KEEP_ALIVE_S = 120
SESSION_EXPIRY_S = 86_400
RETRY_S = 0.5


class Device:
    """The client of a member. `counts` is shared by all: `connected`, `resumed`, `connections_lost`. `failed` is called
    with a DemoError if the gateway refuses something."""

    def __init__(
        self,
        member: Member,
        address: Address,
        account: Account,
        clock: Callable[[], float],
        failed: Callable[[DemoError], None],
        counts: dict[str, int],
    ) -> None:
        self.member = member
        self._account = account
        self._clock = clock
        self._failed = failed
        self._counts = counts
        self._actions: deque[Action] = deque()
        self._acting: asyncio.Task[None] | None = None
        self._unacknowledged: set[asyncio.Future[codes.ReasonCode]] = set()
        self._staying: StayConnected | None = None
        properties = {"session_expiry_interval": SESSION_EXPIRY_S} if member.mqtt5 else None
        version = codes.VERSION_5 if member.mqtt5 else codes.VERSION_3_1_1
        self._client = MqttClient(
            address,
            packets.Connect(member.client, version, False, KEEP_ALIVE_S, properties=properties),
            on_message=self._received,
            hooks=Hooks(on_connected=self._connected, on_closed=self._closed),
        )

    @property
    def is_online(self) -> bool:
        return self._client.is_connected

    @property
    def is_idle(self) -> bool:
        """Whether everything it was asked to do is done and acknowledged."""
        return not self._actions and not self._unacknowledged

    def do(self, action: Action) -> None:
        """Do this after all earlier actions, reconnecting if the connection was lost."""
        self._actions.append(action)
        if self._acting is None:
            self._acting = asyncio.get_running_loop().create_task(self._act())

    def close(self) -> None:
        """Close the connection, if there is one, and do nothing any more."""
        self._client.keeps_waiting = False
        self._client.abort()
        if self._acting is not None:
            self._acting.cancel()

    async def _act(self) -> None:
        try:
            while self._actions:
                await self._perform(self._actions[0])
                self._actions.popleft()
        except MqttClientError as error:
            self._fail(error)
        finally:
            self._acting = None

    async def _perform(self, action: Action) -> None:
        client = self._client
        match action:
            case Connect():
                if self._staying is None:
                    backoff = FullJitter(RETRY_S, RETRY_S, lambda: 1.0)
                    self._staying = StayConnected(client, backoff, lambda error: isinstance(error, ConnectRefused))
                    self._staying.start()
                await client.wait_connected()
            case Subscribe():
                if self.member.subscriptions:
                    wanted = [packets.Subscription(name, qos) for name, qos in self.member.subscriptions]
                    await client.subscribe(*wanted)
            case Publish():
                await client.wait_connected()
                self._publish(action)
            case Disconnect():
                while self._unacknowledged:
                    await asyncio.wait(self._unacknowledged)
                staying, self._staying = self._staying, None
                await client.disconnect()
                if staying is not None:
                    await staying.stop()

    def _publish(self, message: Publish) -> None:
        self._account.published(message, self._clock())
        payload = json.dumps(message.body, ensure_ascii=False).encode()
        future = self._client.publish(message.topic, payload, message.qos)
        self._unacknowledged.add(future)

        def acknowledged(answered: "asyncio.Future[codes.ReasonCode]") -> None:
            self._unacknowledged.discard(answered)
            if answered.cancelled():
                return
            error = answered.exception()
            if error is None:
                self._account.acknowledged(message.id)
            elif isinstance(error, MqttClientError):
                self._fail(error)

        future.add_done_callback(acknowledged)

    def _connected(self, connack: packets.Connack) -> None:
        self._counts["connected"] += 1
        self._counts["resumed"] += connack.session_present
        self._account.online(self.member.client, self._clock())

    def _closed(self, closed: Closed) -> None:
        self._account.offline(self.member.client)
        if closed.by is not EndedBy.CLIENT:
            self._counts["connections_lost"] += 1

    def _received(self, message: packets.Publish) -> None:
        self._account.received(self.member.client, json.loads(message.payload)["id"], self._clock())

    def _fail(self, error: MqttClientError) -> None:
        self._failed(DemoError(f"{self.member.client}: {error}"))
