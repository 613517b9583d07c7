"""`publish`: sends messages to the gateway and reports what the gateway answered."""

import asyncio
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from edge.errors import MqttClientError
from edge.mqtt_client import MqttClient
from jobs.cli.access_options import over_mqtt
from jobs.cli.connecting import (
    LIMITS,
    TIMEOUT_S,
    Access,
    ClientId,
    InTurn,
    Qos,
    UserProperties,
    explained,
    is_elsewhere_better,
    user_properties,
)
from jobs.cli.context import shared
from jobs.errors import JobError
from mqtt.codes import ReasonCode
from mqtt.errors import ProtocolError
from mqtt.packets import Connect, Properties

IN_FLIGHT_MAX = 1_000
"""Maximum of messages sent and not answered yet: more would only fill memory."""
STDIN = "-"

Answers = deque[asyncio.Future[ReasonCode]]


def register(app: typer.Typer) -> None:
    app.command()(publish)


@over_mqtt
def publish(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="A topic such as a/b/c, or @client-id for the inbox of one client.")],
    payload: Annotated[str | None, typer.Argument(help="The text to send.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="Send the contents of this file as one message; `-` reads standard input.")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Send each line of --file, or of standard input, as one message.")
    ] = False,
    qos: Qos = 1,
    retain: Annotated[bool, typer.Option("--retain", help="Retain the message for later subscribers.")] = False,
    properties: UserProperties = None,
    client_id: ClientId = None,
    *,
    access: Access,
) -> None:
    """Publish one or more messages. At QoS 1 and 2 the exit status is 0 only if the gateway acknowledged all of them.

    Examples:

        waystation publish flights/JFK/N14228/departed '{"delay": 2}'
        waystation publish @alice 'a direct message'
        waystation publish --retain weather/JFK 'fog'
        waystation publish camera/7 --file picture.jpg
        tail -f log | waystation publish logs/web --lines
        waystation publish questions --property conversation=42 'and on Sundays?'
    """
    messages = given_messages(payload, file, lines)
    where = access.where(shared(context))
    connect = access.connect_packet(client_id, {}, clean_start=True)
    pairs = user_properties(properties)
    publishing = _Publishing(topic, qos, retain, {"user_property": pairs} if pairs else None)
    asyncio.run(publishing.run(where, connect, messages))


def given_messages(payload: str | None, file: Path | None, lines: bool) -> Iterator[bytes]:
    """The payloads to send. Raises JobError unless there is exactly one source of them."""
    if payload is not None and (file is not None or lines):
        raise JobError("the payload is given twice: give either a text or --file or --lines")
    if payload is not None:
        return iter([payload.encode(errors="surrogateescape")])  # the command line's bytes unchanged
    if file is None and not lines:
        raise JobError("the payload is missing: give a text, --file FILE or --lines")
    return _read(file, lines)


def _read(file: Path | None, lines: bool) -> Iterator[bytes]:
    is_stdin = file is None or str(file) == STDIN
    try:
        with sys.stdin.buffer if is_stdin else open(str(file), "rb") as stream:
            if lines:
                yield from (line.rstrip(b"\r\n") for line in stream)
            else:
                yield stream.read()
    except OSError as error:
        raise JobError(f"cannot read {file or 'standard input'}: {error.strerror}") from error


class _Publishing:
    """Sends messages to one topic over one connection, many at a time, and counts the answers."""

    def __init__(self, topic: str, qos: int, retain: bool, properties: Properties | None) -> None:
        self._topic, self._qos, self._retain, self._properties = topic, qos, retain, properties
        self._acknowledged = 0

    async def run(self, where: InTurn, connect: Connect, messages: Iterable[bytes]) -> None:
        """Raises JobError: which message was not published, and why."""
        client = MqttClient(where, connect, limits=LIMITS)
        try:
            await self._connect(client, where)
            await self._send(client, iter(messages))
            await client.disconnect()
        except (MqttClientError, ProtocolError) as error:
            raise self._explained(error) from error
        finally:
            client.abort()

    async def _connect(self, client: MqttClient, where: InTurn) -> None:
        """To the first gateway that takes it."""
        while True:
            try:
                await client.connect()
            except MqttClientError as error:
                if not where.has_more or not is_elsewhere_better(error):
                    raise
            else:
                return

    async def _send(self, client: MqttClient, messages: Iterator[bytes]) -> None:
        answers: Answers = deque()
        while (payload := await asyncio.to_thread(next, messages, None)) is not None:
            answers.append(client.publish(self._topic, payload, self._qos, self._retain, self._properties))
            await client.drain()
            while answers and (answers[0].done() or len(answers) > IN_FLIGHT_MAX or not client.has_capacity):
                await self._take(answers)
        while answers:
            await self._take(answers)
        if not self._qos:
            # A QoS 0 message has no answer. The answer to a later packet shows that the gateway has read the message
            # and did not end the connection because of it.
            async with asyncio.timeout(TIMEOUT_S):
                await client.unsubscribe(self._topic)

    async def _take(self, answers: Answers) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await answers.popleft()
        except TimeoutError:
            raise JobError(
                f"the gateway did not acknowledge message {self._acknowledged + 1} within {TIMEOUT_S:g} s: "
                "check `waystation status`"
            ) from None
        self._acknowledged += 1

    def _explained(self, error: MqttClientError | ProtocolError) -> JobError:
        sentence = str(explained(error) if isinstance(error, MqttClientError) else error)
        if not self._acknowledged:
            return JobError(sentence)
        verb = "acknowledged" if self._qos else "sent"
        return JobError(f"{sentence} ({self._acknowledged} earlier messages were {verb})")
