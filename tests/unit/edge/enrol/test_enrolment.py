"""A device gets and renews its certificate; whatever fails, its files stay usable (M5, M17)."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bundles.certificates import GRACE_S
from bundles.errors import TokenError
from bundles.receipt import Role
from edge.enrol import identity_files, private_files
from edge.enrol.enrolment import HttpAnswer, Post, enrol, is_due, renew
from edge.enrol.errors import EnrolError, EnrolmentRefused, GatewayNotReached, IdentityFilesError
from edge.enrol.gateway_post import GatewayPost
from edge.enrol.identity_files import SEALING_KEY_KEPT_S, Stored, load
from harness.keys import Authority
from schemas.enrolment import EnrolmentAnswer
from tests.unit.edge.enrol.memory_gateway import MemoryGateway

DAY_S = 86_400


@pytest.fixture
def gateway(tmp_path: Path) -> MemoryGateway:
    return MemoryGateway(tmp_path / "authority")


def enrolled(gateway: MemoryGateway, directory: Path, name: str = "van-7") -> Stored:
    token = gateway.authority.token(name, {Role.RECIPIENT}, 600)
    return asyncio.run(enrol(directory, token, gateway.post))


def renewed(gateway: MemoryGateway, directory: Path, *, rotates: bool = False) -> Stored:
    return asyncio.run(renew(directory, gateway.post, gateway.now_s, rotates_sealing_key=rotates))


def test_a_device_gets_an_identity_with_the_keys_that_it_made(gateway: MemoryGateway, tmp_path: Path) -> None:
    """M5: private keys never leave it; files only their owner reads; what it needs of others comes along (M17)."""
    platform = gateway.authority.issue("platform", {Role.GATEWAY}, tmp_path / "platform")
    gateway.authority.revoke(["z"])
    stored = enrolled(gateway, tmp_path / "deep" / "identity")
    assert (stored.identity.name, stored.identity.certificate.roles) == ("van-7", {Role.RECIPIENT})
    assert stored.gateways == [platform]
    assert stored.revocations.number == 2
    files = sorted((tmp_path / "deep" / "identity").iterdir())
    assert [file.name for file in files] == [
        *("authority.pem", "certificate.pem", "gateways.pem", "key.pem", "revocations.bin", "sealing-key.pem")
    ]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    for directory in (tmp_path / "deep", tmp_path / "deep" / "identity"):
        assert directory.stat().st_mode & 0o777 == 0o700
    for key in (stored.identity.key, *stored.identity.sealing_keys):
        raw = key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        assert not any(raw in asked or msgspec.json.encode(raw)[1:-1] in asked for asked in gateway.asked)


def test_a_second_enrolment_changes_nothing(gateway: MemoryGateway, tmp_path: Path) -> None:
    first = enrolled(gateway, tmp_path / "identity")
    with pytest.raises(IdentityFilesError, match="move that directory away"):
        enrolled(gateway, tmp_path / "identity")
    assert load(tmp_path / "identity").identity.certificate == first.identity.certificate


def test_expired_foreign_and_damaged_tokens_are_refused_in_words(gateway: MemoryGateway, tmp_path: Path) -> None:
    late = gateway.authority.token("van-7", {Role.RECIPIENT}, 600)
    foreign = MemoryGateway(tmp_path / "other").authority.token("van-7", {Role.RECIPIENT}, 600)
    gateway.now_s += 600
    for token, error, detail in (
        (late, EnrolmentRefused, "has expired"),
        (foreign, EnrolmentRefused, "another authority"),
        (late[:-3], TokenError, "damaged"),
        ("password", TokenError, "no enrolment token"),
    ):
        with pytest.raises(error, match=detail) as caught:
            asyncio.run(enrol(tmp_path / "identity", token, gateway.post))
        assert token not in str(caught.value)
    assert not identity_files.is_enrolled(tmp_path / "identity")


def answers(change: Callable[[EnrolmentAnswer], EnrolmentAnswer], gateway: MemoryGateway) -> Post:
    """A gateway in between that changes what it passes on."""

    async def post(path: str, body: bytes) -> HttpAnswer:
        answer = await gateway.post(path, body)
        decoded = msgspec.json.decode(answer.body, type=EnrolmentAnswer)
        return HttpAnswer(200, msgspec.json.encode(change(decoded)))

    return post


def test_a_false_gateway_gets_nothing_stored(gateway: MemoryGateway, tmp_path: Path) -> None:
    """The token names the authority; the certificate must be the one that was asked for."""
    other = MemoryGateway(tmp_path / "other")
    others = enrolled(other, tmp_path / "others")
    mine = enrolled(gateway, tmp_path / "mine", "somebody")
    replace = msgspec.structs.replace
    foreign = others.authority.certificate.public_bytes(Encoding.DER)
    forged = other.authority.revoke(["z"]).encoded
    cases: list[tuple[Callable[[EnrolmentAnswer], EnrolmentAnswer], type[EnrolError]]] = [
        (lambda one: replace(one, authority=foreign), EnrolmentRefused),
        (lambda one: replace(one, authority=b"x"), GatewayNotReached),
        (lambda one: replace(one, certificate=mine.identity.certificate.der), GatewayNotReached),
        (lambda one: replace(one, certificate=others.identity.certificate.der), GatewayNotReached),
        (lambda one: replace(one, mesh=replace(one.mesh, revocations=forged)), GatewayNotReached),
        (lambda one: replace(one, mesh=replace(one.mesh, certificates=[b"x"])), GatewayNotReached),
    ]
    token = gateway.authority.token("van-7", {Role.RECIPIENT}, 600)
    for change, error in cases:
        with pytest.raises(error):
            asyncio.run(enrol(tmp_path / "identity", token, answers(change, gateway)))
        assert not identity_files.is_enrolled(tmp_path / "identity")
    assert asyncio.run(enrol(tmp_path / "identity", token, gateway.post)).identity.name == "van-7"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (HttpAnswer(200, b"<html>login"), GatewayNotReached),
        (HttpAnswer(503, b"{}"), GatewayNotReached),
        (HttpAnswer(429, b'{"detail": "too many"}'), GatewayNotReached),
        (HttpAnswer(400, b"\xff"), EnrolmentRefused),
        (HttpAnswer(404, b'{"detail": "ask another gateway"}'), GatewayNotReached),
        (HttpAnswer(405, b""), GatewayNotReached),
        (HttpAnswer(401, b""), GatewayNotReached),
        (HttpAnswer(403, b'{"detail": "no\\u001b[2J"}'), EnrolmentRefused),
    ],
)
def test_what_is_no_answer_is_said(
    gateway: MemoryGateway, tmp_path: Path, answer: HttpAnswer, error: type[EnrolError]
) -> None:
    async def post(path: str, body: bytes) -> HttpAnswer:
        return answer

    token = gateway.authority.token("van-7", {Role.RECIPIENT}, 600)
    with pytest.raises(error) as caught:
        asyncio.run(enrol(tmp_path / "identity", token, post))
    assert str(caught.value).isprintable()


def test_a_certificate_is_renewed_from_half_of_its_lifetime(gateway: MemoryGateway, tmp_path: Path) -> None:
    first = enrolled(gateway, tmp_path / "identity").identity
    assert not is_due(first.certificate, gateway.now_s + 3 * DAY_S)
    assert is_due(first.certificate, gateway.now_s + 4 * DAY_S)
    gateway.now_s += 4 * DAY_S
    gateway.authority.revoke(["z"])
    second = renewed(gateway, tmp_path / "identity")
    assert second.identity.certificate.not_after_s == first.certificate.not_after_s + 4 * DAY_S
    assert second.identity.certificate.key == first.certificate.key
    assert second.revocations.number == 2
    third = renewed(gateway, tmp_path / "identity")
    assert third.revocations.number == 2, "a list that the device has stays, though it is not sent again"


def test_expired_certificates_are_renewed_for_a_while_and_revoked_ones_never(
    gateway: MemoryGateway, tmp_path: Path
) -> None:
    enrolled(gateway, tmp_path / "identity")
    gateway.now_s += 7 * DAY_S + GRACE_S - 1
    certificate = renewed(gateway, tmp_path / "identity").identity.certificate
    assert certificate.is_valid(gateway.now_s)
    gateway.authority.revoke(["van-7"])
    with pytest.raises(EnrolmentRefused, match="is revoked"):
        renewed(gateway, tmp_path / "identity")
    assert load(tmp_path / "identity").identity.certificate == certificate
    (tmp_path / "identity").rename(tmp_path / "away")
    assert enrolled(gateway, tmp_path / "identity").identity.name == "van-7"
    gateway.now_s += 7 * DAY_S + GRACE_S
    with pytest.raises(EnrolmentRefused, match="30 days ago"):
        renewed(gateway, tmp_path / "identity")


def test_a_rotated_sealing_key_is_kept_while_payloads_may_come(gateway: MemoryGateway, tmp_path: Path) -> None:
    """M17."""
    old = enrolled(gateway, tmp_path / "identity").identity.sealing_keys[0].public_key()
    gateway.now_s += 4 * DAY_S
    rotated = renewed(gateway, tmp_path / "identity", rotates=True).identity
    assert rotated.sealing_keys[0].public_key() == rotated.certificate.sealing_key != old
    assert rotated.sealing_keys[1].public_key() == old
    rotated_at = gateway.now_s
    for _ in range(20):
        gateway.now_s += 4 * DAY_S
        keys = [one.public_key() for one in renewed(gateway, tmp_path / "identity").identity.sealing_keys]
        assert (old in keys) == (gateway.now_s <= rotated_at + SEALING_KEY_KEPT_S)
    assert keys == [rotated.certificate.sealing_key]


@pytest.mark.parametrize("rotates", [False, True])
def test_a_crash_at_any_write_leaves_an_identity(
    gateway: MemoryGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rotates: bool
) -> None:
    """Of a renewal: the old one or the new one; and the next attempt succeeds."""
    write = private_files.write
    for last in range(10):
        directory = tmp_path / f"identity {last}"
        enrolled(gateway, directory)
        left = [last]

        def crashing(path: Path, content: bytes, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                path.with_name(f".{path.name}.new").write_bytes(content[:5])
                raise KeyboardInterrupt
            write(path, content)

        monkeypatch.setattr(identity_files, "write", crashing)
        gateway.now_s += 1
        try:
            renewed(gateway, directory, rotates=rotates)
        except KeyboardInterrupt:
            monkeypatch.setattr(identity_files, "write", write)
            assert load(directory).identity.name == "van-7"
            sealing = renewed(gateway, directory, rotates=rotates).identity.sealing_keys
            assert len(sealing) <= 1 + 2 * rotates
        else:
            monkeypatch.setattr(identity_files, "write", write)
            assert last >= 2
            return
    raise AssertionError("it writes more than ten files")


def test_an_enrolment_that_was_cut_is_repeated_with_the_same_keys(gateway: MemoryGateway, tmp_path: Path) -> None:
    async def lost(path: str, body: bytes) -> HttpAnswer:
        await gateway.post(path, body)
        raise GatewayNotReached("the link broke")

    token = gateway.authority.token("van-7", {Role.RECIPIENT}, 600)
    with pytest.raises(GatewayNotReached):
        asyncio.run(enrol(tmp_path / "identity", token, lost))
    key = (tmp_path / "identity" / "key.pem").read_bytes()
    asyncio.run(enrol(tmp_path / "identity", token, gateway.post))
    assert (tmp_path / "identity" / "key.pem").read_bytes() == key


@pytest.mark.parametrize("name", ["certificate.pem", "key.pem", "sealing-key.pem", "authority.pem", "gateways.pem"])
def test_missing_and_damaged_files_are_named(gateway: MemoryGateway, tmp_path: Path, name: str) -> None:
    gateway.authority.issue("platform", {Role.GATEWAY}, tmp_path / "platform")
    enrolled(gateway, tmp_path / "identity")
    (tmp_path / "identity" / name).write_bytes(b"-----BEGIN nothing")
    with pytest.raises(IdentityFilesError, match=r"identity|damaged"):
        load(tmp_path / "identity")
    (tmp_path / "identity" / name).unlink()
    if name != "gateways.pem":
        with pytest.raises(IdentityFilesError):
            load(tmp_path / "identity")


@pytest.mark.parametrize(
    ("url", "detail"),
    [("http://192.0.2.1:8080", "not safe"), ("ftp://a", "not a gateway"), ("https://u@a", "without user")],
)
def test_a_token_goes_over_tls_only(url: str, detail: str) -> None:
    with pytest.raises(EnrolError, match=detail):
        GatewayPost(url, None, 5)


def test_a_gateway_that_does_not_speak_http_or_is_away() -> None:
    async def scenario() -> list[str]:
        said = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 smtp.example.org\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        for _ in range(2):
            with pytest.raises(GatewayNotReached) as caught:
                await GatewayPost(f"http://127.0.0.1:{port}", None, 5)("/v1/enrolments", b"{}")
            said.append(str(caught.value))
            server.close()
            await server.wait_closed()
        return said

    not_http, away = asyncio.run(scenario())
    assert "not valid HTTP" in not_http or "cannot be reached" in not_http
    assert "cannot be reached" in away


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_token_is_sent_to_a_trusted_gateway_only(tmp_path: Path, is_trusted: bool) -> None:
    """Over TLS; its certificate may have another name than the host in the URL."""
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    one, other = Authority(tmp_path / "one"), Authority(tmp_path / "other")
    signed = one.sign("gateway")
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(signed.certificate, signed.key)
    ours = ssl.create_default_context(cafile=str((one if is_trusted else other).file))
    received: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"{}"))
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        writer.close()

    async def scenario() -> HttpAnswer:
        async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=theirs) as server:
            url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/base"
            return await GatewayPost(url, ours, 20, "localhost")("/v1/enrolments", b"{}")

    if is_trusted:
        assert asyncio.run(scenario()) == HttpAnswer(403, b"no")
        assert received[0].startswith(b"POST /base/v1/enrolments HTTP/1.1\r\n")
    else:
        with pytest.raises(GatewayNotReached, match="certificate"):
            asyncio.run(scenario())
        assert not received
