"""One MQTT client: a paho-mqtt client that does one thing after the other and never blocks.

Callbacks of paho only note what happened and ask the loop for :meth:`Device.advance`: paho's locks forbid more in them.
"""

import json
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from jobs.demo.errors import DemoError
from jobs.demo.expectations import Account
from jobs.demo.plan import Action, Connect, Disconnect, Member, Publish, Subscribe

KEEP_ALIVE_S = 120
SESSION_EXPIRY_S = 86_400


class Loop(Protocol):
    """What a device asks of the loop that drives it."""

    def opened(self, device: "Device", sock: Any) -> None: ...

    def closed(self, device: "Device", sock: Any) -> None: ...

    def has_output(self, device: "Device") -> None:
        """Call :meth:`Device.write` soon."""

    def output_done(self, device: "Device", sock: Any) -> None: ...

    def ready(self, device: "Device") -> None:
        """Call :meth:`Device.advance` soon."""

    def retry(self, device: "Device") -> None:
        """Call :meth:`Device.advance` after a pause."""


class Phase(Enum):
    """OFFLINE → CONNECTING → ONLINE → CLOSING → OFFLINE; a lost connection goes from any to OFFLINE."""

    OFFLINE = "offline"
    CONNECTING = "connecting"
    ONLINE = "online"
    CLOSING = "closing"


class Device:
    """The client of a member. `counts` is shared by all: `connected`, `resumed`, `connections_lost`."""

    def __init__(
        self,
        member: Member,
        address: tuple[str, int],
        account: Account,
        clock: Callable[[], float],
        loop: Loop,
        counts: dict[str, int],
    ) -> None:
        self.member = member
        self.phase = Phase.OFFLINE
        self._address = address
        self._account = account
        self._clock = clock
        self._loop = loop
        self._counts = counts
        self._actions: deque[Action] = deque()
        self._unacknowledged: dict[int, str] = {}
        self._connects = 0
        self._subscribing = False
        self._client = self._make_client()

    @property
    def is_idle(self) -> bool:
        """Whether everything it was asked to do is done and acknowledged."""
        return not self._actions and not self._unacknowledged

    def do(self, action: Action) -> None:
        """Do this once all before it is done. Publishing while offline waits for the next Connect."""
        self._actions.append(action)
        self._loop.ready(self)

    def advance(self) -> None:
        """Do what can be done now."""
        while self._actions and self._perform(self._actions[0]):
            self._actions.popleft()

    @property
    def socket(self) -> Any:
        """None while there is no connection."""
        return self._client.socket()

    def read(self) -> None:
        self._client.loop_read()

    def write(self) -> bool:
        """Whether something is left that the socket would not take."""
        self._client.loop_write()
        return bool(self._client.want_write())

    def keep_alive(self) -> None:
        self._client.loop_misc()

    def close(self) -> None:
        """Drop the connection, if there is one, and do nothing any more."""
        client = self._client
        client.on_socket_close = client.on_socket_unregister_write = client.on_disconnect = None
        if (sock := client.socket()) is not None:
            sock.close()

    def _perform(self, action: Action) -> bool:
        """Whether the action is done."""
        online = self.phase is Phase.ONLINE
        match action:
            case Connect():
                if self.phase is Phase.OFFLINE:
                    self._connect()
                return online
            case Subscribe():
                if online and not self._subscribing:
                    self._subscribe()
                return online and not self._subscribing
            case Publish():
                if online:
                    self._publish(action)
                return online
            case Disconnect():
                if not online or self._unacknowledged:
                    return False
                self._account.offline(self.member.client)
                self.phase = Phase.CLOSING
                self._client.disconnect()
                return True

    def _connect(self) -> None:
        try:
            if self._connects:
                self._client.reconnect()
            elif self.member.mqtt5:
                properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
                properties.SessionExpiryInterval = SESSION_EXPIRY_S
                self._client.connect(*self._address, KEEP_ALIVE_S, clean_start=False, properties=properties)
            else:
                self._client.connect(*self._address, KEEP_ALIVE_S)
        except OSError:
            self._loop.retry(self)
            return
        self.phase = Phase.CONNECTING

    def _subscribe(self) -> None:
        wanted = self.member.subscriptions
        self._subscribing = bool(wanted)
        if not wanted:
            return
        if self.member.mqtt5:
            self._client.subscribe([(name, SubscribeOptions(qos=qos)) for name, qos in wanted])
        else:
            self._client.subscribe([(name, qos) for name, qos in wanted])

    def _publish(self, message: Publish) -> None:
        self._account.published(message, self._clock())
        payload = json.dumps(message.body, ensure_ascii=False).encode()
        self._unacknowledged[self._client.publish(message.topic, payload, message.qos).mid] = message.id

    def _make_client(self) -> Client:
        member = self.member
        if member.mqtt5:
            client = Client(CallbackAPIVersion.VERSION2, member.client, protocol=MQTTProtocolVersion.MQTTv5)
        else:
            client = Client(CallbackAPIVersion.VERSION2, member.client, clean_session=False)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_publish = self._on_publish
        client.on_message = self._on_message
        client.on_socket_open = lambda _client, _data, sock: self._loop.opened(self, sock)
        client.on_socket_close = lambda _client, _data, sock: self._loop.closed(self, sock)
        client.on_socket_register_write = lambda _client, _data, _sock: self._loop.has_output(self)
        client.on_socket_unregister_write = lambda _client, _data, sock: self._loop.output_done(self, sock)
        return client

    def _on_connect(self, _client: Client, _data: Any, flags: ConnectFlags, code: ReasonCode, _properties: Any) -> None:
        if code.is_failure:
            raise DemoError(f"the gateway refuses the connection of {self.member.client}: {code}")
        self.phase = Phase.ONLINE
        self._connects += 1
        self._counts["connected"] += 1
        self._counts["resumed"] += bool(flags.session_present)
        self._account.online(self.member.client, self._clock())
        self._loop.ready(self)

    def _on_disconnect(
        self, _client: Client, _data: Any, _flags: DisconnectFlags, _code: ReasonCode, _properties: Any
    ) -> None:
        wanted = self.phase is Phase.CLOSING
        self.phase = Phase.OFFLINE
        if wanted:
            self._loop.ready(self)
            return
        self._subscribing = False
        self._counts["connections_lost"] += 1
        self._account.offline(self.member.client)
        self._actions.appendleft(Connect())
        self._loop.retry(self)

    def _on_subscribe(self, _client: Client, _data: Any, _mid: int, codes: list[ReasonCode], _properties: Any) -> None:
        refused = [code for code in codes if code.is_failure]
        if refused:
            raise DemoError(f"the gateway refuses a subscription of {self.member.client}: {refused[0]}")
        self._actions.popleft()
        self._subscribing = False
        self._loop.ready(self)

    def _on_publish(self, _client: Client, _data: Any, mid: int, code: ReasonCode, _properties: Any) -> None:
        message_id = self._unacknowledged.pop(mid)
        if code.is_failure:
            raise DemoError(f"the gateway refuses a message of {self.member.client}: {code}")
        self._account.acknowledged(message_id)
        self._loop.ready(self)

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        self._account.received(self.member.client, json.loads(message.payload)["id"], self._clock())
