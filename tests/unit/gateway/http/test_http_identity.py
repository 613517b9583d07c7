"""Who an HTTP client is, and what it may do (R11)."""

import base64
import ssl
import time
from pathlib import Path

import aiohttp
import msgspec
import pytest

from gateway.host.authenticator import Credentials, NotAdmitted
from gateway.http.identity import client_id
from gateway.shard.rules import ALLOWED, FOR_EVER, ClientRules, Verdict
from harness.keys import Authority
from mqtt.codes import ReasonCode
from mqtt.packets import Publish
from schemas.settings import process_settings
from tests.unit.gateway.http.http_harness import HttpHarness, run

PASSWORDS = {"ann": b"secret", "bob:x": b"token-of-bob"}
BASIC = {"Authorization": "Basic " + base64.b64encode(b"ann:secret").decode()}
BEARER = {"Authorization": "Bearer token-of-bob"}


class Rules:
    """Users may publish below `open` and `<client id>`; what a topic is called is its verdict."""

    open = False

    def __init__(self, user: str, client: str, until: float = FOR_EVER) -> None:
        self.user = user
        self.until = until
        self._client = client

    def publish(self, packet: Publish) -> Verdict:
        if packet.topic in ReasonCode.__members__:
            return Verdict(ReasonCode[packet.topic])
        return ALLOWED if packet.topic in ("open", self._client) else Verdict(ReasonCode.NOT_AUTHORIZED)

    def may_publish(self, topic: str) -> bool:
        return topic in ("open", self._client)

    def subscribe(self, topic_filter: str) -> ReasonCode:
        return ReasonCode.SUCCESS if topic_filter == "open" else ReasonCode.NOT_AUTHORIZED


class PasswordAuthenticator:
    """Knows two users by password or token; nobody may come in without a name."""

    def __init__(self) -> None:
        self.seen: list[Credentials] = []

    async def admit(self, credentials: Credentials) -> ClientRules:
        self.seen.append(credentials)
        if credentials.password is None:
            if credentials.client == "http:anonymous" or credentials.client.startswith("http:auto-"):
                raise NotAdmitted(ReasonCode.NOT_AUTHORIZED, "nobody")
            return Rules("", credentials.client)
        for user, password in PASSWORDS.items():
            if credentials.password == password and credentials.username in (None, user):
                return Rules(user, credentials.client)
        if credentials.password == b"banned":
            raise NotAdmitted(ReasonCode.BANNED, "banned")
        if credentials.password == b"busy":
            raise NotAdmitted(ReasonCode.SERVER_BUSY, "busy")
        raise NotAdmitted(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "wrong")


def test_client_ids_of_different_owners_never_meet() -> None:
    """Whatever users and names are called."""
    users, names = ["", "a", "a:b", "b", "%3A", "auto-1", "é/+#"], ["", "a", "b", "a-b", "auto-1", "anonymous.1"]
    ids = [client_id(name, user) for user in users for name in names]
    assert len(set(ids)) == len(ids)
    assert all(id.startswith(("http:", "http-")) and not set(id) & set("/+# ") for id in ids)


@pytest.mark.parametrize(
    ("headers", "client"),
    [
        (BASIC, "http-ann"),
        (BASIC | {"X-Client-Id": "n"}, "http-ann:n"),
        (BEARER, "http-bob%3Ax"),
        ({"X-Client-Id": "ann"}, "http:ann"),
    ],
)
def test_the_gate_is_asked_for_the_client_that_the_message_is_from(
    tmp_path: Path, headers: dict[str, str], client: str
) -> None:
    """Rules that speak of the client id are those of the id in the envelope, however the user was found out."""

    async def scenario() -> None:
        authenticator = PasswordAuthenticator()
        harness = await HttpHarness(tmp_path, authenticator=authenticator).start()
        assert (await harness.post("open", headers=headers)).status == 202
        assert (await harness.post(client.replace("%", "%25"), headers=headers)).status == 202
        sources = [
            (record.headers() or [])[1][1].decode()
            for p in range(2)
            for record in harness.broker.partitions[harness.topics.ingress, p]
        ]
        assert sources == [client, client]
        assert authenticator.seen[-1].client == client
        assert {credentials.bearer for credentials in authenticator.seen} == {"http"}
        assert authenticator.seen[-1].peer.startswith("127.0.0.1:")

    run(scenario())


@pytest.mark.parametrize(
    ("authorization", "status", "reason"),
    [
        (None, 401, "not_authorized"),
        ("Bearer wrong", 401, "bad_user_name_or_password"),
        ("Basic " + base64.b64encode(b"ann:wrong").decode(), 401, "bad_user_name_or_password"),
        ("Bearer", 401, "malformed_credentials"),
        ("Basic ???", 401, "malformed_credentials"),
        ("Basic " + base64.b64encode(b"nocolon").decode(), 401, "malformed_credentials"),
        ("Basic " + base64.b64encode(b"\xff:\xff").decode(), 401, "malformed_credentials"),
        ("Digest x", 401, "malformed_credentials"),
        ("Bearer banned", 403, "banned"),
        ("Bearer busy", 503, "server_busy"),
    ],
)
@pytest.mark.parametrize(("method", "target"), [("POST", "/v1/messages/open"), ("GET", "/v1/stream?filter=open")])
def test_who_may_not_come_in(
    tmp_path: Path, method: str, target: str, authorization: str | None, status: int, reason: str
) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, authenticator=PasswordAuthenticator()).start()
        headers = {"Authorization": authorization} if authorization else {}
        async with harness.session.request(method, harness.url(target), headers=headers) as response:
            assert response.status == status
            assert (await response.json(content_type="application/problem+json"))["reason"] == reason
            challenges = response.headers.getall("WWW-Authenticate", [])
            assert [challenge.split()[0] for challenge in challenges] == (["Basic", "Bearer"] if status == 401 else [])
        assert harness.hosts.counts["not_admitted"] == 1
        assert await harness.stored() == []

    run(scenario())


def test_verdicts_of_the_rules_have_statuses(tmp_path: Path) -> None:
    """Q12: asked once, at the publisher; what they refuse is not stored."""
    wanted = {
        "NOT_AUTHORIZED": 403,
        "ADMINISTRATIVE_ACTION": 403,
        "PACKET_TOO_LARGE": 413,
        "MESSAGE_RATE_TOO_HIGH": 429,
        "QUOTA_EXCEEDED": 429,
        "TOPIC_NAME_INVALID": 400,
        "PAYLOAD_FORMAT_INVALID": 400,
    }

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, authenticator=PasswordAuthenticator()).start()
        for name, status in wanted.items():
            answer = await harness.post(name, headers=BASIC)
            assert (answer.status, answer.reason) == (status, name.lower())
            assert ("Retry-After" in answer.headers) == (status == 429)
        assert await harness.stored() == []
        answer = await harness.request("GET", "/v1/stream?filter=closed", headers=BASIC)
        assert (answer.status, answer.reason) == (403, "not_authorized")
        assert answer.json["filters"] == ["closed"]
        answer = await harness.request("GET", "/v1/stream?filter=open&filter=closed&filter=closed/a", headers=BASIC)
        assert answer.json["filters"] == ["closed", "closed/a"], "there may be a stream of the others"
        assert harness.home.session("http-ann") is None

    run(scenario())


def test_web_pages_may_call_only_if_their_origin_is_listed(tmp_path: Path) -> None:
    """A page must not use its visitor's way to the gateway."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"origins": ["https://app.example.org"]}).start()
        answer = await harness.post("a", headers={"Origin": "https://evil.example.org"})
        assert (answer.status, answer.reason) == (403, "origin_not_allowed")
        assert await harness.stored() == []
        answer = await harness.post("a", headers={"Origin": "https://app.example.org"})
        assert answer.status == 202
        assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example.org"
        async with harness.session.get(
            harness.url("/v1/stream?wait=0.01"), headers={"Origin": "https://app.example.org"}
        ) as response:
            assert response.headers["Access-Control-Allow-Origin"] == "https://app.example.org"

    run(scenario())


class BriefAuthenticator:
    """Whoever comes may stay for so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def admit(self, credentials: Credentials) -> ClientRules:
        return Rules("ann", credentials.client, time.time() + self._seconds)


@pytest.mark.parametrize("methods", [(), ("password", "anonymous")])
def test_a_page_of_a_foreign_name_that_resolves_to_this_machine_may_do_nothing(
    tmp_path: Path, methods: tuple[str, ...]
) -> None:
    """DNS rebinding: for the browser such a page is the gateway's own, so it names no foreign origin."""

    async def scenario() -> None:
        settings = process_settings({}).gateway
        authentication = msgspec.structs.replace(settings.authentication, methods=methods)
        harness = await HttpHarness(tmp_path, gateway={"authentication": authentication}).start()
        for name in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "[evil.example]"):
            page = {"Host": name, "Sec-Fetch-Site": "same-origin"}
            answer = await harness.request("GET", "/v1/stream?filter=%23&wait=0.01", headers=page)
            assert (answer.status, answer.reason) == (403, "host_not_allowed")
            assert (await harness.post("a", headers=page)).reason == "host_not_allowed"
        for name in ("localhost", "localhost:8080", "127.0.0.1", "[::1]:8080"):
            assert (await harness.post("a", headers={"Host": name})).status == 202
        assert len(await harness.stored()) == 4

    run(scenario())


@pytest.mark.parametrize(("host", "methods"), [("127.0.0.1", ("password",)), ("0.0.0.0", ("password", "anonymous"))])
def test_a_gateway_has_any_name_where_a_name_proves_nothing(
    tmp_path: Path, host: str, methods: tuple[str, ...]
) -> None:
    """As the admin API with a token: a foreign page has no credentials; and to a network the gateway has many names."""

    async def scenario() -> None:
        authentication = msgspec.structs.replace(process_settings({}).gateway.authentication, methods=methods)
        harness = await HttpHarness(tmp_path, gateway={"authentication": authentication, "host": host}).start()
        assert (await harness.post("a", headers={"Host": "gateway.example"})).status == 202

    run(scenario())


def test_a_stream_ends_with_the_token_that_opened_it(tmp_path: Path) -> None:
    """R11: what the client showed counts for so long; its session stays, as after any end."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, authenticator=BriefAuthenticator(0.2)).start()
        async with harness.stream("?filter=open") as stream:
            assert [(event.kind, event.data) for event in await stream.rest()] == [
                ("end", {"reason": "not_authorized"})
            ]
        assert harness.home.session("http-ann") is not None
        assert harness.hosts.counts["closed_not_authorized"] == 1

    run(scenario())


def test_a_trusted_proxy_says_who_asks(tmp_path: Path) -> None:
    """G11: the last address that is no trusted proxy's; from elsewhere nobody is believed."""

    async def scenario() -> None:
        authenticator = PasswordAuthenticator()
        trusting = {"trusted_proxies": ("127.0.0.0/8", "10.0.0.0/8")}
        harness = await HttpHarness(tmp_path, authenticator=authenticator, gateway=trusting).start()
        headers = BASIC | {"X-Forwarded-For": "1.1.1.1, 192.0.2.7, 10.0.0.1"}
        assert (await harness.post("open", headers=headers)).status == 202
        assert authenticator.seen[-1].peer == "192.0.2.7:0"
        answer = await harness.post("open", headers=BASIC | {"X-Forwarded-For": "nobody"})
        assert (answer.status, answer.reason) == (400, "malformed_header")
        harness = await HttpHarness(tmp_path / "other", authenticator=authenticator).start()
        assert (await harness.post("open", headers=headers)).status == 202
        assert authenticator.seen[-1].peer.startswith("127.0.0.1:")

    (tmp_path / "other").mkdir()
    run(scenario())


def test_https_with_a_client_certificate(tmp_path: Path) -> None:
    """G11, R11: the verified common name goes to the authenticator; without a certificate there is no connection."""

    async def scenario() -> None:
        authority, authenticator = Authority(tmp_path), PasswordAuthenticator()
        ours, device = authority.sign("localhost", file="server"), authority.sign("device-7")
        base = process_settings({}).gateway.tls
        tls = msgspec.structs.replace(
            base,
            certificate=str(ours.certificate),
            key=str(ours.key),
            client_ca=str(authority.file),
            client_certificates="required",
            https_port=0,
        )
        harness = await HttpHarness(
            tmp_path, authenticator=authenticator, gateway={"tls": tls, "http_port": "off"}
        ).start()
        trust = ssl.create_default_context(cafile=str(authority.file))
        url = harness.url("/v1/messages/open", "https")
        with pytest.raises(aiohttp.ClientError):
            await harness.session.post(url, data=b"x", headers=BASIC, ssl=trust)
        trust.load_cert_chain(device.certificate, device.key)
        async with harness.session.post(url, data=b"x", headers=BASIC, ssl=trust) as response:
            assert response.status == 202
        assert authenticator.seen[-1].certificate == "device-7"
        assert set(harness.ports) == {"https"}

    run(scenario())
