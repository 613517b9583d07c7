"""Mail submitted over TLS by stock programs: swaks, msmtp, openssl and smtplib (M16; RFC 3207, RFC 8314).

`starttls`: a command begins TLS; `tls`: a connection begins with it. In either case programs verify the certificate,
and nobody submits or sends a password without TLS.
"""

import os
import re
import shutil
import smtplib
import ssl
import subprocess
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import pytest

from harness.keys import Authority
from schemas import password_file
from tests.agent_process import AgentProcess
from tests.mosquitto import HOST, free_port
from tests.namespaces import output_of

ANN, BOB, SECRET = "ann@a.example", "bob@b.example", "right horse"
CONTENT = b"From: ann@a.example\r\nTo: bob@b.example\r\nSubject: x\r\n\r\nhello\r\n"
SETTINGS = """client_id = "a"
[platform]
connect_points = ["mqtt://127.0.0.1:9"]
[smtp.routes]
"b.example" = "b"
[smtp.submission]
enabled = true
port = {port}
tls = "{tls}"
password_file = "users"
certificate_file = "{certificate}"
key_file = "{key}"
"""
Tls = Literal["starttls", "tls"]


class Listening(NamedTuple):
    agent: AgentProcess
    port: int
    tls: Tls
    authority: Authority
    stranger: Authority

    def accepted(self) -> int:
        """How many mails the agent has on disk."""
        return int(self.agent.status()["outbox"]["messages"])


@pytest.fixture(scope="module", params=["starttls", "tls"])
def listening(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    directory, port, tls = tmp_path_factory.mktemp("tls"), free_port(), request.param
    authority, signed = Authority(directory), None
    signed = authority.sign("agent")
    text = SETTINGS.format(port=port, tls=tls, certificate=signed.certificate, key=signed.key)
    agent = AgentProcess(directory / "agent", text)
    users = password_file.with_user("", "ann", password_file.hasher().hash(SECRET))
    (agent.directory / "users").write_text(users)
    try:
        agent.start()
        yield Listening(agent, port, tls, authority, Authority(directory, "stranger"))
        agent.stop()
    finally:
        agent.end()


def needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is missing: install it, see CONTRIBUTING.md")


def swaks(at: Listening, authority: Authority, password: str) -> tuple[int, str]:
    needs("swaks")
    how = "--tls" if at.tls == "starttls" else "--tls-on-connect"
    words = [
        "swaks",
        how,
        "--tls-verify",
        "--tls-ca-path",
        str(authority.file),
        "--server",
        HOST,
        "--port",
        str(at.port),
    ]
    login = ["--auth", "PLAIN", "--auth-user", "ann", "--auth-password", password]
    return output_of([*words, *login, "--from", ANN, "--to", BOB, "--data", CONTENT.decode()])


def msmtp(at: Listening, authority: Authority, password: str) -> tuple[int, str]:
    needs("msmtp")
    conf = at.agent.directory / "msmtprc"
    conf.write_text(
        f"account default\nhost {HOST}\nport {at.port}\nfrom {ANN}\nauth plain\nuser ann\npassword {password}\ntls on\n"
        f"tls_starttls {'on' if at.tls == 'starttls' else 'off'}\ntls_trust_file {authority.file}\n"
    )
    conf.chmod(0o600)
    return output_of(["msmtp", f"--file={conf}", BOB], CONTENT)


def standard_library(at: Listening, authority: Authority, password: str) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=str(authority.file))
    try:
        if at.tls == "tls":
            client: smtplib.SMTP = smtplib.SMTP_SSL(HOST, at.port, timeout=30, context=context)
        else:
            client = smtplib.SMTP(HOST, at.port, timeout=30)
        with client:
            if at.tls == "starttls":
                client.starttls(context=context)
            client.login("ann", password)
            client.sendmail(ANN, [BOB], CONTENT)
    except (ssl.SSLError, smtplib.SMTPException) as error:
        return 1, str(error)
    return 0, ""


Program = Callable[[Listening, Authority, str], tuple[int, str]]


@pytest.mark.parametrize("program", [swaks, msmtp, standard_library])
def test_who_may_submit(listening: Listening, program: Program) -> None:
    """The right password over TLS that the program has verified; nothing else."""
    before = listening.accepted()
    status, said = program(listening, listening.authority, SECRET)
    if "Net::SSLeay" in said:
        pytest.skip("swaks cannot speak TLS here: install libnet-ssleay-perl, see CONTRIBUTING.md")
    assert status == 0, said
    assert listening.accepted() == before + 1
    status, said = program(listening, listening.authority, "wrong")
    assert (status != 0, "535" in said) == (True, True), said
    status, said = program(listening, listening.stranger, SECRET)
    assert (status != 0, bool(re.search("certificate|verif", said, re.IGNORECASE))) == (True, True), said
    assert listening.accepted() == before + 1


def test_nothing_without_tls(listening: Listening) -> None:
    """Neither a mail nor a password: where TLS begins with a command it must come first; else nobody answers."""
    before = listening.accepted()
    if listening.tls == "starttls":
        with smtplib.SMTP(HOST, listening.port, timeout=30) as client:
            client.ehlo()
            assert not client.has_extn("auth")
            assert client.mail(ANN)[0] == 530
            assert client.docmd("AUTH PLAIN", "AGFubgByaWdodCBob3JzZQ==")[0] in (530, 538)
    else:
        with pytest.raises((smtplib.SMTPException, OSError)):
            smtplib.SMTP(HOST, listening.port, timeout=5).close()
    assert listening.accepted() == before


def test_what_openssl_sees(listening: Listening) -> None:
    """TLS 1.2 at least, and a certificate of the authority."""
    needs("openssl")
    words = ["openssl", "s_client", "-connect", f"{HOST}:{listening.port}", "-CAfile", str(listening.authority.file)]
    words += ["-verify_return_error", *(["-starttls", "smtp"] if listening.tls == "starttls" else [])]
    status, said = output_of(words, b"QUIT\r\n")
    assert (status, "Verify return code: 0 (ok)" in said) == (0, True), said
    old = subprocess.run([*words, "-tls1_1"], input=b"QUIT\r\n", capture_output=True, check=False, timeout=60)
    assert old.returncode != 0, os.fsdecode(old.stdout)
