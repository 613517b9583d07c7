"""curl, as it is, at a gateway that does not have its session: everything works as at its home (G8, G11, G14, Q1)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from schemas.identity import derived_message_id
from tests.unit.gateway.http.http_harness import PATIENCE_S
from tests.unit.gateway.http.http_site import HttpSite, client_of, run

C = client_of(1)
"""Its home is gateway 1."""


async def curl(*arguments: str, sent: bytes | None = None) -> tuple[int, Any]:
    """Status and body, decoded; `sent` goes to its standard input in two pieces, a moment apart."""
    program = await asyncio.create_subprocess_exec(
        *("curl", "--silent", "--show-error", "--location", "--max-time", str(PATIENCE_S)),
        *("--write-out", "\n%{http_code} %{num_redirects}", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert program.stdin is not None
    if sent is not None:
        program.stdin.write(sent[: len(sent) // 2])
        await program.stdin.drain()
        await asyncio.sleep(0.2)
        program.stdin.write(sent[len(sent) // 2 :])
    program.stdin.close()
    said, _ = await program.communicate()
    body, _, facts = said.decode().rpartition("\n")
    status, redirects = facts.split()
    assert redirects == "0"
    return int(status), json.loads(body) if body else None


@asynccontextmanager
async def curl_stream(site: HttpSite, gateway: int, *headers: str) -> AsyncIterator[asyncio.StreamReader]:
    program = await asyncio.create_subprocess_exec(
        *("curl", "--silent", "--no-buffer", "-H", f"X-Client-Id: {C}"),
        *(part for header in headers for part in ("-H", header)),
        str(site.url(gateway, "/v1/stream?filter=a")),
        stdout=asyncio.subprocess.PIPE,
    )
    assert program.stdout is not None
    try:
        assert await program.stdout.readline() == b"retry: 1000\n"
        yield program.stdout
    finally:
        if program.returncode is None:
            program.terminate()
        await program.wait()


async def event(stream: asyncio.StreamReader) -> dict[str, str]:
    """The fields of the next event."""
    found: dict[str, str] = {}
    async with asyncio.timeout(PATIENCE_S):
        while True:
            line = await stream.readline()
            assert line, "the stream has ended"
            name, _, value = line.decode().strip().partition(": ")
            if name:
                found[name] = value
            elif "data" in found:
                return found


def test_curl_publishes_with_a_key_at_any_gateway(tmp_path: Path) -> None:
    """A body at once, one that comes slowly in chunks, and one that curl announces with Expect: 100-continue."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        large = b"x" * 70_000
        for key, sent in (("small", b"x"), ("large", large)):
            for gateway in (0, 1, 0):
                status, body = await curl(
                    *("-X", "POST", "-H", f"X-Client-Id: {C}", "-H", f"Idempotency-Key: {key}"),
                    *("-H", "Content-Type: text/plain", "-H", "Expect: 100-continue", "-T", "-"),
                    str(site.url(gateway, "/v1/messages/a")),
                    sent=sent,
                )
                assert (status, body) == (202, {"id": derived_message_id(f"http:{C}", key)})
        assert sorted(site.stored(), key=len) == [b"x", large]

    run(scenario())


def test_curl_follows_a_stream_over_a_change_of_home(tmp_path: Path) -> None:
    """It acknowledges at one gateway, loses its home, and goes on at the other one."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()

        async def publish(payload: str) -> None:
            status, _ = await curl("--data-binary", payload, str(site.url(0, "/v1/messages/a")))
            assert status == 202

        async with curl_stream(site, 0) as stream:
            for payload in ("1", "2"):
                await publish(payload)
            events = [await event(stream) for _ in range(2)]
            assert [json.loads(one["data"])["payload"] for one in events] == ["1", "2"]
            acknowledged = json.dumps({"last_event_id": events[0]["id"]})
            headers = ("-H", f"X-Client-Id: {C}", "-H", "Content-Type: application/json")
            assert await curl(*headers, "-d", acknowledged, str(site.url(0, "/v1/stream/ack"))) == (204, None)
            await site.move(1, 0)
            assert (await event(stream))["event"] == "end"
        async with curl_stream(site, 1, f"Last-Event-ID: {events[1]['id']}") as stream:
            again = json.loads((await event(stream))["data"])["payload"]
            assert again == "2", "the next home does not know the event ids of the one before"
            await publish("3")
            assert json.loads((await event(stream))["data"])["payload"] == "3"

    run(scenario())
