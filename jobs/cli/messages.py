"""`publish` and `subscribe`: an MQTT 5 client for first steps, against the running stack."""

import os
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from jobs.cli.context import Shared, shared
from jobs.errors import JobError
from jobs.stack.state import running_state

TIMEOUT_S = 10.0
KEPT_S = 86_400
PASSWORD_VARIABLE = "WAYSTATION_PASSWORD"

Qos = Annotated[int, typer.Option(min=0, max=2, help="0 at most once, 1 at least once, 2 exactly once.")]
Address = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Another gateway than that of the running stack.")
]


User = Annotated[
    str | None, typer.Option(help="User name; the password is asked for, or taken from WAYSTATION_PASSWORD.")
]


def register(app: typer.Typer) -> None:
    app.command()(publish)
    app.command()(subscribe)


def publish(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="A topic `a/b/c`, or `@client-id` for one client's inbox.")],
    payload: Annotated[str, typer.Argument(help="The text to send.")],
    qos: Qos = 1,
    retain: Annotated[bool, typer.Option("--retain", help="Keep it for those who subscribe later.")] = False,
    client_id: Annotated[str | None, typer.Option(help="Send under this name instead of a new one.")] = None,
    address: Address = None,
    user: User = None,
) -> None:
    """Publish one message. With QoS 1 or 2 it returns once the message is safe.

    Examples:

        waystation publish flights/JFK/N14228/departed '{"delay": 2}'
        waystation publish @alice 'a direct message'
        waystation publish --retain weather/JFK 'fog'
    """
    with _connected(_address(shared(context), address), client_id, 0, _credentials(user)) as client:
        message = client.publish(topic, payload.encode(), qos=qos, retain=retain)
        try:
            message.wait_for_publish(TIMEOUT_S)
        except (RuntimeError, ValueError) as error:
            raise JobError(f"the message was not published: {error}") from error
        if not message.is_published():
            raise JobError(
                f"the gateway did not acknowledge the message within {TIMEOUT_S:g} s: see `waystation status`"
            )


def subscribe(
    context: typer.Context,
    filters: Annotated[
        list[str], typer.Argument(metavar="FILTER...", help="Topic filters; `+` one level, `#` the rest.")
    ],
    qos: Qos = 1,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many messages.")] = None,
    client_id: Annotated[
        str | None, typer.Option(help="Keep the session under this name for a day: what comes meanwhile waits.")
    ] = None,
    address: Address = None,
    user: User = None,
) -> None:
    """Subscribe and print every message as `topic payload`, until Ctrl-C.

    Examples:

        waystation subscribe 'flights/JFK/#' 'weather/+'
        waystation subscribe --client-id alice 'news/#'    and what is sent to @alice
    """
    done = threading.Event()
    left = [count]

    def on_message(client: Client, userdata: Any, message: MQTTMessage) -> None:
        if done.is_set():
            return
        sys.stdout.write(f"{message.topic} {message.payload.decode(errors='backslashreplace')}\n")
        sys.stdout.flush()
        if left[0] is not None:
            left[0] -= 1
            if left[0] == 0:
                done.set()

    kept_s = KEPT_S if client_id else 0
    with _connected(_address(shared(context), address), client_id, kept_s, _credentials(user), on_message) as client:
        answered = threading.Event()
        refused: list[str] = []

        def on_subscribe(client: Client, userdata: Any, mid: int, codes: list[ReasonCode], properties: Any) -> None:
            refused.extend(f"{name} ({code})" for name, code in zip(filters, codes, strict=False) if code.is_failure)
            answered.set()

        client.on_subscribe = on_subscribe
        try:
            client.subscribe([(name, SubscribeOptions(qos=qos)) for name in filters])
        except ValueError as error:
            raise JobError(f"{' '.join(filters)} is not a topic filter: {error}") from error
        if not answered.wait(TIMEOUT_S):
            raise JobError(
                f"the gateway did not answer the subscription within {TIMEOUT_S:g} s: see `waystation status`"
            )
        if refused:
            raise JobError(f"the gateway refused {', '.join(refused)}")
        done.wait()


def _address(options: Shared, address: str | None) -> tuple[str, int]:
    """Host and port of the gateway. Raises StackError if none is named and no stack runs."""
    if address is None:
        listeners = running_state(options.data()).listeners
        if "mqtt" not in listeners:
            raise JobError(
                "the gateway has no listener without TLS, or is still starting: see `waystation status`; over TLS use "
                "a client such as mosquitto_pub"
            )
        address = listeners["mqtt"]
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise JobError(f"{address!r} is not an address: write host:port, for example 127.0.0.1:1883")
    return host.strip("[]"), int(port)


def _credentials(user: str | None) -> tuple[str, str] | None:
    """User name and password."""
    if user is None:
        return None
    return user, os.environ.get(PASSWORD_VARIABLE) or typer.prompt("Password", hide_input=True, err=True)


@contextmanager
def _connected(
    address: tuple[str, int],
    client_id: str | None,
    kept_s: int,
    credentials: tuple[str, str] | None,
    on_message: Any = None,
) -> Iterator[Client]:
    """An MQTT 5 client that is connected, its network loop in a thread. Raises JobError if it cannot connect."""
    client = Client(
        CallbackAPIVersion.VERSION2,
        client_id=client_id or f"waystation-{secrets.token_hex(4)}",
        protocol=MQTTProtocolVersion.MQTTv5,
    )
    if credentials is not None:
        client.username_pw_set(*credentials)
    answered = threading.Event()
    refused: list[str] = []

    def on_connect(client: Client, userdata: Any, flags: Any, code: ReasonCode, properties: Any) -> None:
        if code.is_failure:
            refused.append(str(code))
        answered.set()

    client.on_connect = on_connect
    client.on_message = on_message
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = kept_s
    where = f"{address[0]}:{address[1]}"
    try:
        client.connect(*address, clean_start=not kept_s, properties=properties)
    except OSError as error:
        raise JobError(f"no gateway answers at {where} ({error.strerror or error}): see `waystation status`") from error
    client.loop_start()
    try:
        if not answered.wait(TIMEOUT_S):
            raise JobError(f"what listens at {where} does not answer as an MQTT 5 server")
        if refused:
            raise JobError(f"the gateway at {where} refuses the connection: {refused[0]}")
        yield client
    finally:
        client.disconnect()
        client.loop_stop()
