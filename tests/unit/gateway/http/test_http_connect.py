"""GET /v1/connect, the access point: where a client may connect (G1, G2, G12)."""

from pathlib import Path

import msgspec
import pytest

from gateway.host.authenticator import Credentials, NotAdmitted
from gateway.shard.rules import EVERYTHING, ClientRules
from mqtt.codes import ReasonCode
from schemas.members import BEARERS, GatewayAddress, GatewayLoad
from schemas.settings import process_settings
from tests.unit.gateway.http.http_harness import HttpHarness, run
from tests.unit.gateway.members.heartbeat_records import heartbeat

DEFAULTS = process_settings({}).gateway


def test_the_gateways_for_a_bearer_come_in_order(tmp_path: Path) -> None:
    """G1, G2: as (protocol, address, port), the least loaded first; only operational ones; fresh for a second."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        for name, connections in (("gateway-1", 900), ("b", 300), ("c", 20)):
            harness.members.apply(name, heartbeat(name, seq=1, load=GatewayLoad(connections=connections)), 0.0)
        for number, state in enumerate(("joining", "draining", "gone")):
            harness.members.apply(f"d{number}", heartbeat("d", state=state), 0.0)
        harness.members.apply("from before", heartbeat(), None)
        harness.members.apply("other bearer", heartbeat(addresses={"ws": GatewayAddress("w.test", 8)}), 0.0)
        answer = await harness.request("GET", "/v1/connect?bearer=mqtt&client=d%C3%A9vice%207")
        assert answer.status == 200
        assert answer.json == {
            "connect_points": [
                {"protocol": "mqtt", "address": f"{name}.test", "port": 1000} for name in ("c", "b", "gateway-1")
            ]
        }
        assert answer.headers["Cache-Control"] == "private, max-age=1"

    run(scenario())


def test_the_home_of_the_client_is_first(tmp_path: Path) -> None:
    """G12: however loaded it is, if it can be used by the bearer; the others follow by load."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        for name, connections in (("gateway-1", 900), ("b", 300), ("c", 20)):
            harness.members.apply(name, heartbeat(name, seq=1, load=GatewayLoad(connections=connections)), 0.0)
        harness.members.apply("d", heartbeat("d", addresses={"ws": GatewayAddress("d.test", 8)}), 0.0)
        harness.members.apply("e", heartbeat("e", state="draining"), 0.0)
        harness.owners = {"v1": "gateway-1", "v2": "b", "at d": "d", "at e": "e", "at f": "f"}

        async def order(query: str) -> list[str]:
            points = (await harness.request("GET", f"/v1/connect?bearer=mqtt{query}")).json["connect_points"]
            return [point["address"].removesuffix(".test") for point in points]

        assert await order("&client=v1") == ["gateway-1", "c", "b"]
        assert await order("&client=v2") == ["b", "c", "gateway-1"]
        for query in ("", "&client=unknown", "&client=at%20d", "&client=at%20e", "&client=at%20f"):
            assert await order(query) == ["c", "b", "gateway-1"]

    run(scenario())


@pytest.mark.parametrize("bearer", BEARERS)
def test_each_bearer_has_its_own_addresses(tmp_path: Path, bearer: str) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        [point] = (await harness.request("GET", f"/v1/connect?bearer={bearer}")).json["connect_points"]
        assert point == {"protocol": bearer, "address": "gateway-1.test", "port": 1000 + BEARERS.index(bearer)}

    run(scenario())


@pytest.mark.parametrize(
    ("query", "reason", "detail"),
    [
        ("", "malformed_parameter", "bearer must be one of: mqtt, mqtts, ws, wss, http, https, quic"),
        ("?bearer=coap", "malformed_parameter", "bearer must be one of: mqtt, mqtts, ws, wss, http, https, quic"),
        ("?bearer=MQTT", "malformed_parameter", "bearer must be one of"),
        ("?bearer=mqtt&bearer=ws", "repeated_parameter", "bearer occurs 2 times"),
        ("?bearer=mqtt&client=", "malformed_parameter", "client must be a client id: 1 to 1024 bytes"),
        ("?bearer=mqtt&client=a%00b", "malformed_parameter", "without U+0000"),
        ("?bearer=mqtt&client=" + "%C3%A9" * 513, "malformed_parameter", "client must be a client id"),
        ("?bearer=mqtt&client=%FF", "malformed_encoding", "not UTF-8"),
        ("?bearer=mqtt&zone=a", "unknown_parameter", "allowed: bearer, client"),
    ],
)
def test_a_wrong_query_is_refused(tmp_path: Path, query: str, reason: str, detail: str) -> None:
    """G1: the refusal says what is allowed."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        answer = await harness.request("GET", f"/v1/connect{query}")
        assert (answer.status, answer.reason) == (400, reason)
        assert detail in answer.json["detail"]

    run(scenario())


def test_without_an_operational_gateway_it_says_when_to_ask_again(tmp_path: Path) -> None:
    """G1: also once heartbeats stop to arrive here, whoever is to blame."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        harness.members_now = DEFAULTS.cluster.timeout_s
        assert (await harness.request("GET", "/v1/connect?bearer=mqtt")).status == 200
        harness.members_now += 0.001
        answer = await harness.request("GET", "/v1/connect?bearer=mqtt")
        assert (answer.status, answer.reason) == (503, "no_operational_gateway")
        assert answer.headers["Retry-After"] == "1"
        harness.members.apply(
            "gateway-1", heartbeat(seq=1, addresses={"ws": GatewayAddress("w", 1)}), harness.members_now
        )
        assert (await harness.request("GET", "/v1/connect?bearer=mqtt")).status == 503
        assert (await harness.request("GET", "/v1/connect?bearer=ws")).status == 200

    run(scenario())


def test_it_can_be_switched_off_while_everything_else_goes_on(tmp_path: Path) -> None:
    """G12."""

    async def scenario() -> None:
        off = msgspec.structs.replace(DEFAULTS.access_point, enabled=False)
        harness = await HttpHarness(tmp_path, gateway={"access_point": off}).start()
        answer = await harness.request("GET", "/v1/connect?bearer=mqtt")
        assert (answer.status, answer.reason) == (404, "access_point_off")
        assert "gateway.access_point.enabled" in answer.json["detail"]
        assert (await harness.post("a")).status == 202
        assert (await harness.request("GET", "/openapi.json")).status == 200

    run(scenario())


class OnlyAnn:
    """Admits the user ann."""

    async def admit(self, credentials: Credentials) -> ClientRules:
        if credentials.username != "ann":
            raise NotAdmitted(ReasonCode.NOT_AUTHORIZED, "not ann")
        return EVERYTHING


def test_a_client_shows_its_credentials_as_for_any_other_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, authenticator=OnlyAnn()).start()
        answer = await harness.request("GET", "/v1/connect?bearer=mqtt")
        assert (answer.status, answer.reason) == (401, "not_authorized")
        headers = {"Authorization": "Basic YW5uOng="}
        assert (await harness.request("GET", "/v1/connect?bearer=mqtt", headers=headers)).status == 200

    run(scenario())
