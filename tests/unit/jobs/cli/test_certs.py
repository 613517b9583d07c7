"""`waystation certs`: what it makes is taken by TLS as the guide says."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., int]


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """A handshake in memory; the server's end."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    open_ends = set(ends)
    for _ in range(10):
        for end in ends:
            if end in open_ends:
                try:
                    end.do_handshake()
                    open_ends.discard(end)
                except ssl.SSLWantReadError:
                    continue
    assert not open_ends
    return ends[1]


def server_context(directory: Path, verify: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.crt", directory / "server.key")
    if verify:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(directory / "ca.crt")
    return context


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_a_client_with_the_authority_trusts_the_server(run: Run, tmp_path: Path, host: str) -> None:
    assert run("certs", str(tmp_path / "tls")) == 0
    client = ssl.create_default_context(cafile=tmp_path / "tls" / "ca.crt")
    handshake(server_context(tmp_path / "tls", verify=False), client, host)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(tmp_path / "tls", verify=False), client, "elsewhere.example")


def test_a_client_certificate_names_the_client(run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Added later, it is of the same authority, and the server's own stays as it was."""
    directory = tmp_path / "tls"
    assert run("certs", str(directory), "--host", "gateway.example") == 0
    before = (directory / "server.crt").read_bytes()
    assert run("certs", str(directory), "--client", "device-7") == 0
    assert (directory / "server.crt").read_bytes() == before
    client = ssl.create_default_context(cafile=directory / "ca.crt")
    client.load_cert_chain(directory / "device-7.crt", directory / "device-7.key")
    certificate = handshake(server_context(directory, verify=True), client, "gateway.example").getpeercert()
    assert certificate is not None
    assert (("commonName", "device-7"),) in certificate["subject"]
    shown = capfd.readouterr().out
    assert f'certificate = "{directory}/server.crt"' in shown
    assert f'client_ca = "{directory}/ca.crt"' in shown


def test_keys_are_for_their_owner_alone(run: Run, tmp_path: Path) -> None:
    assert run("certs", str(tmp_path), "--client", "c") == 0
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("*.key")} == dict.fromkeys(
        ("ca.key", "c.key", "server.key"), 0o600
    )


@pytest.mark.parametrize("name", ["../x", "ca", "", "x" * 65])
def test_a_name_that_cannot_be_is_one_sentence(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    assert run("certs", str(tmp_path), "--client", name) == 1
    assert "cannot create certificates in" in (err := capfd.readouterr().err)
    assert err.count("\n") == 1
