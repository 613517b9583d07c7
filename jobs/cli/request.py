"""`request`: sends a request, and prints the reply or the replies (MQTT 5.0, 4.10; R6)."""

import asyncio
import math
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import typer

from edge.client.client import Client
from edge.client.errors import NoReply, NotReachable
from edge.client.message import IncomingMessage
from edge.client.options import RequestOptions
from edge.errors import MqttClientError
from jobs.cli.access_options import over_mqtt
from jobs.cli.connecting import (
    Access,
    ClientId,
    Qos,
    UserProperties,
    explained,
    user_properties,
)
from jobs.cli.context import shared
from jobs.cli.message_format import Format, as_json, as_raw, payload_as_text
from jobs.cli.publish import given_messages
from jobs.errors import JobError
from mqtt.errors import ProtocolError
from mqtt.packets import Properties, Publish

TIMEOUT_S = 30.0
KEPT_S = 60
"""How much longer than its request a session lasts that could not be ended, seconds."""


def register(app: typer.Typer) -> None:
    app.command()(request)


@over_mqtt
def request(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="A topic such as a/b/c, or @client-id for the inbox of one client.")],
    payload: Annotated[str | None, typer.Argument(help="The text to send. Default: nothing.")] = None,
    file: Annotated[Path | None, typer.Option(help="Send the contents of this file; `-` reads standard input.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Print the replies of all receivers, not only the first one.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How long to wait.")] = TIMEOUT_S,
    again_after: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="Send the request again whenever so long has passed without a reply. In a shared subscription the "
            "next member gets it, with the user property request-repeated=true.",
        ),
    ] = None,
    qos: Qos = 1,
    properties: UserProperties = None,
    format: Annotated[
        Format, typer.Option(help="text: the payload on one line; json: one object per line; raw: the payload's bytes.")
    ] = Format.TEXT,
    client_id: ClientId = None,
    *,
    access: Access,
) -> None:
    """Send a request, and print the reply. The exit status is 0 only if there is one. If the gateway says that nobody
    has got the request, the command does not wait any longer.

    Examples:

        waystation request @shop-1 'when do you open?'
        waystation request questions --property conversation=42 'and on Sundays?'
        waystation request sensors/state --all --timeout 5
        waystation request questions 'anybody there?' --again-after 5
        waystation request camera/7/describe --file picture.jpg --format json
    """
    if every and again_after is not None:
        raise JobError("--again-after goes with one reply: leave out --all, or --again-after")
    content = b"" if payload is None and file is None else next(given_messages(payload, file, lines=False))
    asked: RequestOptions = {"qos": qos, "user_properties": user_properties(properties)}
    client = _client(access, context, client_id, timeout)
    requesting = _Requesting(client, format, math.inf if again_after is None else again_after)
    asyncio.run(requesting.run(topic, content, timeout, asked, every=every))


def _client(access: Access, context: typer.Context, client_id: str | None, timeout_s: float) -> Client:
    """One whose session lasts little longer than the request, should nobody end it. Raises as :class:`Access`."""
    addresses = access.where(shared(context)).addresses
    who = access.connect_packet(client_id, {}, clean_start=True)
    scheme = "quic" if access.quic else "mqtt" if addresses[0].tls is None else "mqtts"
    try:
        return Client(
            client_id=who.client_id,
            connect_points=[f"{scheme}://{address}" for address in addresses],
            username=who.username,
            password=who.password,
            tls=addresses[0].tls,
            quic=addresses[0].quic,
            server_hostname=access.server_name,
            session_expiry_s=math.ceil(timeout_s) + KEPT_S,
        )
    except ValueError as error:
        raise JobError(str(error)) from error


class _Requesting:
    """Sends one request, and writes what comes."""

    def __init__(self, client: Client, format: Format, again_after_s: float) -> None:
        self._client, self._format, self._again_after_s = client, format, again_after_s

    async def run(self, topic: str, payload: bytes, timeout_s: float, asked: RequestOptions, *, every: bool) -> None:
        """Raises ClientError, JobError: why there is no reply."""
        replies = 0
        try:
            async with self._client as client:
                await client.connected()
                if every:
                    answers: AsyncIterator[IncomingMessage] = client.request_all(
                        topic, payload, timeout_s=timeout_s, **asked
                    )
                    async for reply in answers:
                        self._write(reply)
                        replies += 1
                else:
                    again_after_s = self._again_after_s
                    self._write(
                        await client.request(topic, payload, timeout_s=timeout_s, again_after_s=again_after_s, **asked)
                    )
        except NotReachable as error:
            reasons = "; ".join(dict.fromkeys(attempt.reason for attempt in error.attempts))
            raise JobError(f"{reasons}; check `waystation status`") from error
        except MqttClientError as error:
            raise explained(error) from error
        except ProtocolError as error:
            raise JobError(str(error)) from error
        if every and not replies:
            raise NoReply(f"no reply from {topic!r} within {timeout_s:g} s")

    def _write(self, reply: IncomingMessage) -> None:
        sys.stdout.buffer.write(self._line(reply))
        sys.stdout.buffer.flush()

    def _line(self, reply: IncomingMessage) -> bytes:
        if self._format is Format.TEXT:
            return payload_as_text(reply.payload).encode() + b"\n"
        found: Properties = {"content_type": reply.content_type, "user_property": reply.user_properties}
        told = {name: value for name, value in found.items() if value}
        as_format = as_json if self._format is Format.JSON else as_raw
        return as_format(Publish(reply.topic, reply.payload, reply.qos, reply.retain, properties=told))
