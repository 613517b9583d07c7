"""What a client asks over HTTP at a gateway that is not its home is done by its home (G8, G11, G14, Q1, R11)."""

import asyncio
import json
from pathlib import Path

import pytest

from gateway.host.home_calls import CERTIFICATE, EPOCH, PEER
from gateway.host.homes import HomeElsewhere
from schemas.identity import derived_message_id, shard_of
from tests.unit.gateway.http.http_harness import until
from tests.unit.gateway.http.http_site import HOST, HttpSite, client_of, run
from tests.unit.gateway.shard.home_harness import SHARDS

C = client_of(1)
"""Its home is gateway 1; requests come to gateway 0."""
JSON = {"Content-Type": "application/json"}


async def posted_until(site: HttpSite, *payloads: bytes) -> None:
    """Messages for `C`, through both gateways in turn."""
    for number, payload in enumerate(payloads):
        answer = await site.ask(number % 2, "POST", "/v1/messages/a", data=payload)
        assert answer.status == 202


def test_a_key_is_one_at_all_gateways(tmp_path: Path) -> None:
    """Q1: whichever gateway is asked, first or again, there is one message."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        first, second, third = [await site.keyed(gateway, C, "k") for gateway in (0, 1, 0)]
        assert [one.status for one in (first, second, third)] == [202] * 3
        assert first.json == second.json == third.json == {"id": derived_message_id(f"http:{C}", "k")}
        assert "Idempotency-Replayed" not in first.headers
        assert second.headers["Idempotency-Replayed"] == third.headers["Idempotency-Replayed"] == "true"
        assert (await site.keyed(0, C, "k", b"other")).reason == "idempotency_key_reused"
        assert site.stored() == [b"x"]
        assert site.count(0, "home_calls") == 3
        assert site.count(1, "home_calls") == 0

    run(scenario())


def test_the_message_is_as_if_the_home_had_been_asked(tmp_path: Path) -> None:
    """Topic, payload and properties pass byte for byte; so does an empty body, and one without a content type."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        target = "a//b/%C3%A9%2Fc?retain=true&response_topic=r&expiry=60"
        for key, body, kind in (("1", b"\x00\xff" * 5000, "image/png"), ("2", b"", None), ("3", b"x", None)):
            records = []
            for gateway, client in ((0, C), (1, C)):
                headers = {"X-Client-Id": client, "Idempotency-Key": f"{key}{gateway}", "User-Property": "p=1, q=2"}
                headers |= {"Correlation-Data": "AAE="} | ({} if kind is None else {"Content-Type": kind})
                answer = await site.ask(
                    gateway,
                    "POST",
                    f"/v1/messages/{target}",
                    data=body,
                    headers=headers,
                    skip_auto_headers=("Content-Type",),
                )
                assert answer.status == 202, answer.body
                partition = [r for p in range(2) for r in site.broker.partitions[site.topics.ingress, p]]
                records.append(max(partition, key=lambda record: record.offset()))
            forwarded, direct = records
            assert forwarded.key() == direct.key() == "a//b/é/c".encode()
            assert (forwarded.value() or b"") == (direct.value() or b"") == body
            assert dict(forwarded.headers() or [])["props"] == dict(direct.headers() or [])["props"]

    run(scenario())


def test_a_message_without_a_key_needs_no_home(tmp_path: Path) -> None:
    """Any gateway stores it, so none is asked; R8: who waits for each answer gets them in order."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        async with site.stream(1, "?filter=a", X_Client_Id=C) as stream:
            for number in range(10):
                headers = {"X-Client-Id": C}
                answer = await site.ask(number % 2, "POST", "/v1/messages/a", data=b"%d" % number, headers=headers)
                assert answer.status == 202
            assert await stream.payloads(10) == [str(number) for number in range(10)]
        assert site.count(0, "home_calls") == 0

    run(scenario())


def test_a_stream_and_its_acknowledgements_work_at_any_gateway(tmp_path: Path) -> None:
    """G8: the session is one, wherever its client asks; acknowledged events do not come again."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        async with site.stream(0, "?filter=a", X_Client_Id=C) as stream:
            await posted_until(site, b"1", b"2", b"3")
            first = await stream.events(3)
            body = json.dumps({"last_event_id": first[0].id}).encode()
            headers = JSON | {"X-Client-Id": C}
            assert (await site.ask(0, "POST", "/v1/stream/ack", data=body, headers=headers)).status == 204
        await until(lambda: not site.servers[0]._forwarding.streams)
        async with site.stream(1, "?filter=a", X_Client_Id=C, Last_Event_ID=first[1].id) as stream:
            assert await stream.payloads(1) == ["3"]
        async with site.stream(0, f"?filter=a&client={C}") as stream:
            assert await stream.payloads(1) == ["3"]
        unknown = json.dumps({"last_event_id": "0123456789abcdef-1"}).encode()
        answer = await site.ask(0, "POST", "/v1/stream/ack", data=unknown, headers=JSON | {"X-Client-Id": C})
        assert (answer.status, answer.reason) == (409, "unknown_event")

    run(scenario())


def test_a_stream_without_a_name_stays_at_the_gateway(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        for gateway in (0, 1):
            async with site.stream(gateway, "?filter=a") as stream:
                await posted_until(site, b"x")
                assert await stream.payloads(1) == ["x"]
            assert site.count(gateway, "home_calls") == 0

    run(scenario())


def test_a_second_stream_takes_over_wherever_the_first_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        async with (
            site.stream(0, "?filter=a", X_Client_Id=C) as first,
            site.stream(1, "?filter=a", X_Client_Id=C) as second,
        ):
            assert [event.data for event in await first.rest()] == [{"reason": "session_taken_over"}]
            await posted_until(site, b"x")
            assert await second.payloads(1) == ["x"]

    run(scenario())


def test_a_page_may_read_what_another_gateway_answers(tmp_path: Path) -> None:
    """The gateway that is asked checks the origin, and says so once."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path, {"origins": ("http://page",)}).start()
        async with site.session.get(
            site.url(0, f"/v1/stream?client={C}"), headers={"Origin": "http://page"}
        ) as response:
            assert response.headers.getall("Access-Control-Allow-Origin") == ["http://page"]
            assert response.headers["X-Client-Id"] == f"http:{C}"
            assert response.headers["Content-Type"] == "text/event-stream"

    run(scenario())


def test_a_page_of_another_origin_may_use_a_key_at_any_gateway(tmp_path: Path) -> None:
    """A browser says that the page is foreign; only the gateway that is asked learns its origin, and has checked it."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path, {"origins": ("http://page",)}).start()
        headers = {"X-Client-Id": C, "Idempotency-Key": "k", "Sec-Fetch-Site": "cross-site"}
        for gateway in (0, 1):
            answer = await site.ask(
                gateway, "POST", "/v1/messages/a", data=b"x", headers=headers | {"Origin": "http://page"}
            )
            assert answer.status == 202
            answer = await site.ask(gateway, "POST", "/v1/messages/a", data=b"x", headers=headers)
            assert (answer.status, answer.reason) == (403, "origin_not_allowed")

    run(scenario())


def test_a_slow_body_is_not_the_homes_matter(tmp_path: Path) -> None:
    """It is read to its end before the home hears of it, within read_timeout_s and packet_bytes."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path, {"read_timeout_s": 0.3}, packet_bytes=1024).start()
        head = f"POST /v1/messages/a HTTP/1.1\r\nHost: localhost\r\nX-Client-Id: {C}\r\nIdempotency-Key: k\r\n"
        reader, writer = await asyncio.open_connection(HOST, site.ports[0])
        writer.write(head.encode() + b"Content-Length: 10\r\n\r\nhalf")
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()
        assert (await site.keyed(0, C, "k", b"." * 1025)).reason == "packet_too_large"
        assert site.count(0, "home_calls") == 0
        assert (await site.keyed(0, C, "k", b"." * 1024)).status == 202

    run(scenario())


def test_the_home_knows_the_true_peer(tmp_path: Path) -> None:
    """R11, R12. A client cannot say who it is by the headers that gateways use among themselves."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        forged = {"X-Client-Id": C, PEER: "192.0.2.1:1", CERTIFICATE: "somebody", EPOCH: "99"}
        reader, writer = await asyncio.open_connection(HOST, site.ports[0])
        lines = "".join(f"{name}: {value}\r\n" for name, value in forged.items())
        writer.write(f"GET /v1/stream?filter=a HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        host, port = writer.get_extra_info("sockname")
        [event] = site.presence(f"http:{C}")
        assert event.peer == f"{host}:{port}"
        writer.close()
        await until(lambda: len(site.presence(f"http:{C}")) == 2)

    run(scenario())


def test_what_was_sent_on_is_not_sent_on_again(tmp_path: Path) -> None:
    """Two gateways that each take the other for the home say 503 with Retry-After, and not for ever."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        client = client_of(0)
        site.homes[1].believed = {0: site.member(0, 0)}
        site.homes[0].believed = {0: site.member(1, 0)}
        site.gateways[0].home.shards.pop(0)
        site.gateways[1].home.shards.pop(1)

        async def stubborn(_client: str, _epoch: int) -> HomeElsewhere | None:
            return site.homes[1].believed[0]

        site.homes[1].newer = stubborn  # type: ignore[method-assign, assignment]
        answer = await site.keyed(1, client, "k")
        assert (answer.status, answer.reason, answer.headers["Retry-After"]) == (503, "home_unreachable", "1")
        assert EPOCH not in answer.headers
        assert site.count(1, "home_calls") == 3
        assert site.count(0, "home_calls") == 0

    run(scenario())


def test_a_shard_that_nobody_has(tmp_path: Path) -> None:
    """503: the client tries again. What needs no home goes on."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        site.gateways[1].home.shards.pop(1)
        site.homes[0].believed = site.homes[1].believed = {1: None}
        site.homes[0].wait_s = site.homes[1].wait_s = 0
        for gateway in (0, 1):
            answer = await site.keyed(gateway, C, "k")
            assert (answer.status, answer.reason) == (503, "use_another_server")
            assert answer.headers["Retry-After"] == "1"
            assert (await site.ask(gateway, "GET", f"/v1/stream?client={C}")).status == 503
            headers = {"X-Client-Id": C}
            assert (await site.ask(gateway, "POST", "/v1/messages/a", data=b"x", headers=headers)).status == 202

    run(scenario())


def test_a_former_home_names_the_epoch_and_the_next_one_is_asked(tmp_path: Path) -> None:
    """A gateway with an outdated view, and the other way round a home that has moved to the gateway that was asked."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        await site.keyed(0, C, "k")
        outdated = site.member(1, 1)
        await site.move(1, 0)
        site.homes[0].believed = {1: outdated}
        assert (await site.keyed(0, C, "k")).headers["Idempotency-Replayed"] == "true"
        assert (await site.keyed(1, C, "k")).headers["Idempotency-Replayed"] == "true"
        await site.move_to_new(1)
        site.homes[1].believed = {1: site.member(0, 1)._replace(epoch=2)}
        assert (await site.keyed(1, C, "k")).headers["Idempotency-Replayed"] == "true"
        assert site.count(1, "home_calls") == 1 + 2
        assert site.stored() == [b"x"]

    run(scenario())


def test_the_home_dies_while_it_is_asked(tmp_path: Path) -> None:
    """G3, Q1: the next owner is asked for the same message; there is one, whether the first home had stored it or
    not."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        bus = site.gateways[1].bus
        bus.held_acks = {site.topics.ingress}  # stored, and not acknowledged
        asked = asyncio.create_task(site.keyed(0, C, "k"))
        await until(lambda: site.stored())
        await site.take_over(1, 0)
        answer = await asked
        assert answer.status == 202
        assert answer.headers["Idempotency-Replayed"] == "true"
        assert site.stored() == [b"x"]

    run(scenario())


def test_a_stopped_home_is_not_waited_for(tmp_path: Path) -> None:
    """It keeps its connections and answers nothing; once another owns the shard, that one is asked."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        silent = await asyncio.get_running_loop().create_server(asyncio.Protocol, HOST, 0)
        port = silent.sockets[0].getsockname()[1]
        site.homes[0].believed = {1: site.member(1, 1)._replace(gateway="stopped", port=port)}
        asked = asyncio.create_task(site.keyed(0, C, "k"))
        await until(lambda: site.calls(0)._waiting)
        site.changed(1)
        assert (await asked).status == 202
        silent.close()

    run(scenario())


def test_a_stream_ends_with_its_home_and_goes_on_at_the_next_one(tmp_path: Path) -> None:
    """G8: nothing that was not acknowledged is lost. A planned move, and a home that is killed."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        async with site.stream(0, "?filter=a", X_Client_Id=C) as stream:
            await posted_until(site, b"1", b"2")
            events = await stream.events(2)
            await site.move_to_new(1)
            assert [event.data for event in await stream.rest()] == [{"reason": "server_moved"}]
        async with site.stream(0, "?filter=a", X_Client_Id=C, Last_Event_ID=events[1].id) as stream:
            again = await stream.payloads(2)
            assert again == ["1", "2"], "the next home does not know the event ids of the one before"
            await site.take_over(1, 1)
            assert [event.data for event in await stream.rest()] == [{"reason": "server_moved"}]
        async with site.stream(0, "?filter=a", X_Client_Id=C) as stream:
            assert set(await stream.payloads(2)) == {"1", "2"}

    run(scenario())


def test_streams_end_when_the_gateway_that_passes_them_on_stops(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        async with site.stream(0, "?filter=a", X_Client_Id=C) as stream:
            await site.servers[0].stop()
            assert [event.data for event in await stream.rest()] == [{"reason": "server_shutting_down"}]

    run(scenario())


def test_the_home_learns_that_the_client_has_left(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        session = site.gateways[1].home.session
        async with site.stream(0, "?filter=a", X_Client_Id=C):
            found = session(f"http:{C}")
            assert found is not None
            assert found.link is not None
        await until(lambda: found.link is None)
        assert not site.servers[0]._forwarding.streams

    run(scenario())


@pytest.mark.parametrize("gateway", [0, 1])
def test_the_limit_of_streams_holds_at_both_gateways(tmp_path: Path, gateway: int) -> None:
    async def scenario() -> None:
        site = await HttpSite(tmp_path, {"streams": 1}).start()
        async with site.stream(0, X_Client_Id=C):
            here = next(f"d{n}" for n in range(99) if shard_of(f"http:d{n}", SHARDS) == gateway)
            answer = await site.ask(gateway, "GET", f"/v1/stream?client={here}")
            assert (answer.status, answer.reason) == (503, "too_many_streams")

    run(scenario())


def test_connections_to_the_home_are_kept(tmp_path: Path) -> None:
    """One request after the other takes no new connection; one that the home has closed meanwhile is replaced."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        for number in range(5):
            assert (await site.keyed(0, C, f"k{number}")).status == 202
        assert site.hosts[1].http_connections == 1
        for connection in site.servers[1]._server.connections:
            assert connection.transport is not None
            connection.transport.abort()
        assert (await site.keyed(0, C, "k")).status == 202

    run(scenario())
