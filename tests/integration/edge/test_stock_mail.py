"""Stock programs at both ends of a way through two agents: swaks, msmtp and smtplib submit, Postfix and Dovecot take
the mail, curl and imaplib fetch it (M2, M16, M21). There is never a route between the two sides.
"""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.keys import Authority
from tests.listener_in_namespace import captive_portal, slow_way
from tests.mail_network import (
    ANN,
    BOB,
    GHOST,
    LIFETIME_S,
    MAIL_BYTES,
    NOBODY,
    STORED,
    MailNetwork,
    mail,
    send,
)
from tests.mail_wall import MailWall
from tests.namespaces import can_connect, required
from tests.waiting import wait_for

required("postfix", "/usr/lib/dovecot/imap", "/usr/lib/dovecot/lmtp", "swaks", "msmtp", "curl", "mosquitto")

LATER, HELD = "later@b.example", "held@b.example"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MailNetwork]:
    with MailNetwork(tmp_path_factory.mktemp("mail")) as found:
        yield found


@pytest.fixture(scope="module", autouse=True)
def expiring(network: MailNetwork) -> str:
    """A mail that its server never takes, submitted before all others: its lifetime takes long."""
    network.far_mail.policy.actions[NOBODY] = "450 4.2.0 come back later"
    network.submit(mail("expires", recipient=NOBODY), NOBODY)
    network.stuck.add("expires")
    wait_for(lambda: network.far_mail.policy.asked[NOBODY] > 0, "it is tried")
    wait_for(lambda: network.near.status()["outbox"]["messages"] == 0, "the near agent knows")
    return "expires"


def test_mail_there_and_its_answer_back(network: MailNetwork) -> None:
    """M16, M21: also if the near agent has no network while programs submit."""
    wait_for(lambda: network.a.call(can_connect, "10.1.0.1", network.broker.port), "the platform is reached")
    for host in ("10.2.0.2", "10.2.0.1"):
        assert not network.a.call(can_connect, host, 25), "the two sides must not have a route"
    network.link.down()
    contents = {name: mail(name) for name in ("by-swaks", "by-msmtp", "by-smtplib")}
    status, said = network.swaks(contents["by-swaks"])
    assert status == 0, said
    assert "250 2.0.0 accepted as" in said
    assert network.msmtp(contents["by-msmtp"]) == (0, "")
    network.submit(contents["by-smtplib"])
    assert network.near.status()["outbox"]["messages"] == len(contents)
    assert not any(network.far_mail.copies("bob", name) for name in contents)
    contents["by-swaks"] += b"\r\n"  # swaks appends it
    network.link.up()
    for name, content in contents.items():
        network.arrives(name, content)
    fetched = network.far_mail.fetched("bob")
    assert fetched == [network.far_mail.curl("bob", number + 1) for number in range(len(fetched))]

    answer = mail("answer", BOB, ANN)
    network.answer(answer)
    assert b"Delivered-To: ann@a.example" in network.arrives("answer", answer, "ann")
    assert "relayed" in {step["event"] for step in network.near.ask("log", count=10)}


def test_postfix_on_both_sides(network: MailNetwork) -> None:
    """M16: the set-up of docs/agent.md: the programs submit to their Postfix, which gives the mail to the agent."""
    content = mail("through-postfix")
    network.a.call(send, 25, ANN, BOB, content)
    found = network.arrives("through-postfix", content)
    assert found.count(b"by mail.a.example (Postfix)") == found.count(b"by mail.b.example (Postfix)") == 1


def test_refusals_and_bounces_come_back(network: MailNetwork) -> None:
    """M2, M21: an answer 5xx to the agent becomes its report; Postfix's own bounce, from the null sender, passes."""
    network.far_mail.policy.actions["refused@b.example"] = "550 5.7.1 not for you"
    network.submit(mail("refused"), "refused@b.example")
    network.submit(mail("bounces"), GHOST)
    report = network.report("refused").as_string()
    assert "Final-Recipient: rfc822; refused@b.example" in report
    assert "Status: 5.7.1" in report
    assert "not for you" in report
    bounce = network.report("bounces")
    assert "MAILER-DAEMON@b.example" in bounce["From"]
    assert "Reporting-MTA: dns; mail.b.example" in bounce.as_string()
    assert f"Final-Recipient: rfc822; {GHOST}" in bounce.as_string()


def test_a_temporary_refusal_is_tried_again(network: MailNetwork) -> None:
    policy, content = network.far_mail.policy, mail("later", recipient=LATER)
    policy.actions[LATER] = "450 4.2.0 come back later"
    network.submit(content, LATER)
    wait_for(lambda: policy.asked[LATER] >= 2, "it is tried again")
    del policy.actions[LATER]
    network.arrives("later", content, "later")


def test_a_server_that_hangs_is_tried_again(network: MailNetwork) -> None:
    """Postfix accepts the connection, and says nothing."""
    content = mail("hung")
    network.far_mail.freeze(True)
    try:
        network.submit(content)
        wait_for(lambda: "Timed out" in network.far.status()["relay"]["problem"], "the agent gives up waiting")
    finally:
        network.far_mail.freeze(False)
    network.arrives("hung", content)


def test_no_answer_to_the_final_dot_is_doubtful(network: MailNetwork) -> None:
    """The mail comes more than once only as often as the agent counts it as doubtful (RFC 5321, 4.5.3.2.6)."""
    content, policy = mail("held", recipient=HELD), network.far_mail.policy
    before = network.far.status()["relay"].get("doubtful_in_all", 0)
    policy.held.add(HELD)
    network.submit(content, HELD)
    wait_for(lambda: network.far.status()["relay"].get("doubtful_in_all", 0) > before, "it is doubtful")
    policy.held.clear()
    wait_for(lambda: bool(network.far_mail.copies("held", "held")), "the mail arrives")
    network.settle()
    copies = network.far_mail.copies("held", "held")
    assert all(copy.endswith(content) for copy in copies)
    assert len(copies) == 1 + network.far.status()["relay"]["doubtful_in_all"] - before


def test_what_is_too_large_or_too_much_is_refused(network: MailNetwork) -> None:
    """M2: 552 and 452, as swaks sees them; what was accepted before arrives."""
    status, said = network.swaks(mail("large") + b"x\r\n" * (MAIL_BYTES // 3))
    assert (status, "<** 552" in said) == (26, True), said
    network.link.down()
    for number in range(STORED):
        network.submit(mail(f"stored-{number}"))
    status, said = network.swaks(mail("one-too-many"))
    assert (status, "<** 452 4.3.1 the outbox is full" in said) == (26, True), said
    network.link.up()
    network.arrives(f"stored-{STORED - 1}", mail(f"stored-{STORED - 1}"))
    fetched = network.far_mail.fetched("bob")
    for number in range(STORED):
        assert sum(found.endswith(mail(f"stored-{number}")) for found in fetched) == 1, number
    assert not network.far_mail.copies("bob", "one-too-many")
    assert not network.far_mail.copies("bob", "large")


def test_what_cannot_be_delivered_in_time_is_reported(network: MailNetwork, expiring: str) -> None:
    report = network.report(expiring, LIFETIME_S + 30).as_string()
    assert f"Final-Recipient: rfc822; {NOBODY}" in report
    assert "Status: 4.4.7" in report
    assert network.far_mail.policy.asked[NOBODY] > 2
    network.settle()


def test_mail_through_a_wall(network: MailNetwork, tmp_path: Path) -> None:
    """M5-M8, M15-M18, M21: no platform and no route; an agent that moves carries mail, answer and receipts. It is
    killed on its way, and what it carries it cannot read."""
    contents = {name: mail(name) for name in ("wall-swaks", "wall-msmtp", "wall-smtplib")}
    with MailWall(network, tmp_path / "wall") as wall:
        assert network.swaks(contents["wall-swaks"])[0] == 0
        assert network.msmtp(contents["wall-msmtp"]) == (0, "")
        network.submit(contents["wall-smtplib"])
        contents["wall-swaks"] += b"\r\n"  # swaks appends it
        wall.go_to_near()
        wait_for(lambda: wall.held(wall.courier) == len(contents), "the courier has all of it")
        wall.courier.kill()
        files = [file.read_bytes() for file in wall.courier.directory.rglob("*") if file.is_file()]
        assert not any(b"Gr\xc3\xbc\xc3\x9fe" in file or b"wall-smtplib" in file for file in files)
        wall.courier.start()
        wall.go_to_far()
        bob, ann = network.far_mail, network.near_mail
        wait_for(lambda: all(bob.copies("bob", name) for name in contents), "the mails arrive")

        answer = mail("wall-answer", BOB, ANN)
        network.answer(answer)
        wait_for(lambda: wall.held(wall.courier) == 1, "the courier has the answer, and receipts for all else")
        wall.go_to_near()
        wait_for(lambda: bool(ann.copies("ann", "wall-answer")), "the answer arrives")
        wall.go_to_far()  # with the receipt
        wall.settle()
        for server, user, name, content in (
            *((bob, "bob", name, content) for name, content in contents.items()),
            (ann, "ann", "wall-answer", answer),
        ):
            (copy,) = server.copies(user, name)
            assert copy.endswith(b"\r\n" + content), name


# -- networks that are there, and of no use ----------------------------------------------------------------------------

bad_network = pytest.mark.drawn("networks of no use to mail", 1)


@bad_network
def test_black_hole(network: MailNetwork) -> None:
    """M3: packets of an open connection disappear, and nobody says so: a ping without an answer shows it."""
    content = mail("black-hole")
    with network.a.black_hole():
        network.submit(content)
        wait_for(lambda: not network.near.is_connected(), "the agent notices")
        assert network.near.status()["outbox"]["messages"] == 1
    network.arrives("black-hole", content)


@bad_network
def test_round_trips_of_three_seconds(network: MailNetwork) -> None:
    """M3: a network below the configured time-outs works, however slow it is."""
    contents = {name: mail(name) for name in ("slow-1", "slow-2")}
    answer = mail("slow-answer", BOB, ANN)
    with network.all_connections_go_through(slow_way(network.broker.port, 1.5)):
        for content in contents.values():
            network.submit(content)
        network.answer(answer)
        for name, content in contents.items():
            network.arrives(name, content)
        network.arrives("slow-answer", answer, "ann")


@bad_network
def test_three_packets_of_ten_are_lost(network: MailNetwork) -> None:
    contents = {name: mail(name) for name in ("lossy-1", "lossy-2", "lossy-3")}
    answer = mail("lossy-answer", BOB, ANN)
    with network.a.loss(30):
        for content in contents.values():
            network.submit(content)
        network.answer(answer)
        for name, content in contents.items():
            network.arrives(name, content, timeout_s=150)
        network.arrives("lossy-answer", answer, "ann", timeout_s=150)


@bad_network
def test_captive_portal(network: MailNetwork, tmp_path: Path) -> None:
    """M3: a login page that answers everything with 200 has taken nothing."""
    seen: list[str] = []
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*Authority(tmp_path).sign("portal.example"))
    content = mail("portal")
    with network.all_connections_go_through(captive_portal(tls, seen)):
        network.submit(content)
        wait_for(lambda: {"plain", "tls"} <= set(seen) and bool(network.near.status()["problem"]), "it has been asked")
        status = network.near.status()
        assert (status["connected"], status["outbox"]["messages"]) == (False, 1)
        assert "certificate" in status["problem"]
    network.arrives("portal", content)
