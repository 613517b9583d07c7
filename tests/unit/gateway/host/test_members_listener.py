"""Who gets in at the listener for other gateways, and what a member's certificate is (G14, R11)."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from gateway.host import relay_header
from gateway.host.member_tls import MemberTls, member_name, open_member_tls
from gateway.host.relay import ACCEPTED
from gateway.host.relay_header import RelayedClient
from jobs.runtime.certificates import make
from mqtt.encode import encode
from mqtt.packets import Connect
from schemas.errors import SettingsError
from schemas.settings import GatewaySettings, process_settings
from tests.unit.gateway.host.members_harness import Member, make_certificates, member
from tests.unit.gateway.host.socket_gateway import HOST, PATIENCE_S
from tests.waiting import wait_for

HEADER = relay_header.encode(RelayedClient("198.51.100.9:4711", "mqtt", True, "van-7"))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("members"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[Member]:
    directory = tmp_path_factory.mktemp("home") / "home"
    with member(directory, "home", certificates, limits={"connect_timeout_s": 1.0}) as found:
        yield found


def context(certificates: Path, name: str) -> ssl.SSLContext:
    found = ssl.create_default_context(cafile=certificates / "ca.crt")
    found.check_hostname = False
    found.load_cert_chain(certificates / f"{name}.crt", certificates / f"{name}.key")
    return found


def answer(home: Member, tls: ssl.SSLContext | None, *sent: bytes) -> bytes:
    """All that comes before the connection ends, or 5 bytes."""
    got = b""
    plain = socket.create_connection((HOST, home.port), PATIENCE_S)
    with plain, suppress(OSError), plain if tls is None else tls.wrap_socket(plain) as connection:
        for data in sent:
            connection.sendall(data)
        while len(got) < 5 and (data := connection.recv(5)):
            got += data
    return got


def test_a_member_gets_in_and_speaks_for_its_client(home: Member, certificates: Path) -> None:
    """The home takes peer, TLS and certificate of the client from the member."""
    assert answer(home, context(certificates, "door"), HEADER, encode(Connect("c"), 5)).startswith(ACCEPTED + b"\x20")
    event, *_ = home.gateway.call(home.gateway.harness.presence, "c")
    assert event.peer == "198.51.100.9:4711"


@pytest.mark.parametrize("name", ["van-7", "stranger", "home"], ids=["client", "unknown", "itself"])
def test_nobody_else_gets_in(home: Member, certificates: Path, name: str) -> None:
    """R11: a client's certificate, a gateway's that nobody has heard of, and the gateway's own."""
    before = home.gateway.count("closed_unknown_member")
    assert answer(home, context(certificates, name), HEADER, encode(Connect("intruder"), 5)) == b""
    wait_for(lambda: home.gateway.count("closed_unknown_member") == before + 1, "the refusal")
    assert not home.gateway.call(home.gateway.harness.presence, "intruder")


def test_a_client_called_like_a_gateway_gets_not_in(home: Member, certificates: Path, tmp_path: Path) -> None:
    """R11: the same authority has signed it."""
    for file in ("ca.crt", "ca.key"):
        (tmp_path / file).write_bytes((certificates / file).read_bytes())
    make(tmp_path, [HOST], ["door"], 1, lambda _: None)
    assert answer(home, context(tmp_path, "door"), HEADER, encode(Connect("intruder"), 5)) == b""
    assert not home.gateway.call(home.gateway.harness.presence, "intruder")


def test_a_member_of_another_authority_gets_not_in(home: Member, certificates: Path, tmp_path: Path) -> None:
    make(tmp_path, [HOST], [], 1, lambda _: None, gateways=["door"])
    other = context(certificates, "door")
    other.load_cert_chain(tmp_path / "door.crt", tmp_path / "door.key")
    assert answer(home, other, HEADER, encode(Connect("intruder"), 5)) == b""
    assert answer(home, None, HEADER, encode(Connect("intruder"), 5)) == b""
    assert not home.gateway.call(home.gateway.harness.presence, "intruder")


@pytest.mark.parametrize("sent", [b"", HEADER[:20], HEADER], ids=["nothing", "half a header", "no CONNECT"])
def test_a_member_that_falls_silent_is_not_waited_for(home: Member, certificates: Path, sent: bytes) -> None:
    """R9."""
    assert answer(home, context(certificates, "door"), sent) == b""
    wait_for(lambda: not home.gateway.server.connections, "the end")


@pytest.mark.parametrize("sent", [encode(Connect("c"), 5), HEADER.replace(b"mqtt", b"coap"), b"\0" * 5_000])
def test_what_is_no_header_ends_the_connection(home: Member, certificates: Path, sent: bytes) -> None:
    assert answer(home, context(certificates, "door"), sent) == b""


# -- certificates ------------------------------------------------------------------------------------------------------


def settings(certificates: Path, name: str, own: str = "home", **changes: object) -> GatewaySettings:
    gateway = process_settings({}).gateway
    files = {
        "members_certificate": f"{certificates}/{name}.crt",
        "members_key": f"{certificates}/{name}.key",
        "members_ca": f"{certificates}/ca.crt",
    }
    cluster = msgspec.structs.replace(gateway.cluster, **({"enabled": True} | files | changes))
    return msgspec.structs.replace(gateway, name=own, cluster=cluster)


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def test_a_certificate_names_a_gateway_only_by_its_usage(certificates: Path) -> None:
    assert member_name(der(certificates / "door.crt")) == "door"
    assert member_name(der(certificates / "van-7.crt")) is None
    assert member_name(der(certificates / "server.crt")) is None
    assert member_name(der(certificates / "ca.crt")) is None
    assert member_name(b"nonsense") is None
    assert member_name(None) is None


def test_the_certificate_must_be_this_gateways(certificates: Path) -> None:
    MemberTls(settings(certificates, "home"))
    for name in ("door", "van-7"):
        with pytest.raises(SettingsError, match="is not a certificate of this gateway"):
            MemberTls(settings(certificates, name))


def test_files_that_cannot_be_used_are_named_by_their_settings(certificates: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="members_certificate"):
        MemberTls(settings(tmp_path, "home"))
    (tmp_path / "ca").write_text("nothing")
    with pytest.raises(SettingsError, match="members_ca"):
        MemberTls(settings(certificates, "home", members_ca=str(tmp_path / "ca")))


def test_without_files_or_a_cluster_there_is_no_tls(certificates: Path) -> None:
    """A gateway that takes no relayed clients may relay its own to others."""
    empty = {"members_certificate": "", "members_key": "", "members_ca": ""}
    assert open_member_tls(settings(certificates, "home", **empty)) is None
    assert open_member_tls(settings(certificates, "home", members_port="off")) is not None
    assert open_member_tls(settings(certificates, "home", enabled=False)) is None


async def _refresh(tls: MemberTls) -> None:
    for file in tls.files:
        await file.refresh()


def test_new_files_count_for_new_connections(home: Member, certificates: Path, tmp_path: Path) -> None:
    for file in ("ca.crt", "home.crt", "home.key"):
        (tmp_path / file).write_bytes((certificates / file).read_bytes())
    tls = MemberTls(settings(tmp_path, "home"))
    before = (tls.client, tls.server.files.current)
    (tmp_path / "home.key").unlink()
    home.gateway.run(_refresh(tls))
    assert (tls.client, tls.server.files.current) == before, "broken files change nothing"
    (tmp_path / "home.key").write_bytes((certificates / "home.key").read_bytes())
    home.gateway.run(_refresh(tls))
    assert tls.client is not before[0]
    assert tls.server.files.current is not before[1]
