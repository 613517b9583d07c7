"""Certificates and revocation lists travel at contacts; what does not verify ends them (M5, M17)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundles import revocations as revocation_format
from bundles.certificates import Certificate
from bundles.known_certificates import KnownCertificates
from bundles.receipt import Role
from bundles.revocations import Revocations as RevocationList
from edge.mesh.carrier import Carrier
from edge.mesh.contact import Contact
from edge.mesh.contact_events import CertificateTaken, Closed, EndedBy, Event, ReceiptTaken, RevocationsTaken
from edge.mesh.contact_frames import Certificates, Frame, Hello, Receipts, Revocations, Summary, encode
from edge.mesh.limits import MeshLimits
from tests.unit.bundles.keys import AUTHORITY, NOW_S, bundle, certificate, key, receipt
from tests.unit.edge.mesh.contact_pair import MeshPair, meet

GATEWAY = certificate("gateway", roles=(Role.GATEWAY,))
HELLO = Hello("x", 1, has_uplink=False, predictability=1.0, frame_bytes=65_536, bundle_bytes=10**6, revocations=5)


def agent(name: str, *more: Certificate, incarnation: int = 7, revocations: int = 0, **limits: float) -> Carrier:
    """It knows its own certificate and `more`."""
    known = KnownCertificates(AUTHORITY, lambda: NOW_S, kept=(name,))
    for one in (certificate(name), *more):
        known.add(one.der)
    if revocations:
        known.take_revocations(revoked(revocations).encoded)
    return Carrier.with_certificates(name, incarnation, known, MeshLimits(**limits))  # type: ignore[arg-type]


def revoked(number: int, *names: str, authority: str = "the authority") -> RevocationList:
    return revocation_format.sign(number, NOW_S, dict.fromkeys(names, NOW_S), key(authority))


def names_taken(events: list[Event]) -> list[str]:
    return [event.certificate.name for event in events if isinstance(event, CertificateTaken)]


def knows(carrier: Carrier, name: str) -> bool:
    assert carrier.certificates is not None
    return bool(carrier.certificates.of(name))


def test_the_originators_certificate_comes_before_its_bundle() -> None:
    """M5, M17: over two hops, to agents that have never heard of the originator."""
    first, second, third = agent("a"), agent("b", certificates=0), agent("c", certificates=0)
    first.submit(bundle(), 0)
    assert "Received" in meet(first, second).kinds(1)
    pair = meet(second, third, 200)
    assert "Received" in pair.kinds(1)
    assert sorted(names_taken(pair.events[1])) == ["a", "b"]


def test_a_signers_certificate_comes_before_its_receipt() -> None:
    first, second = agent("a", GATEWAY, certificates=0), agent("b")
    second.add(bundle(originator="b"), 8, 0)
    first.take_receipt(receipt(bundle(originator="b").message_id))
    pair = meet(first, second)
    assert any(isinstance(event, ReceiptTaken) for event in pair.events[1])
    assert len(second) == 0


def test_all_certificates_spread_over_contacts_within_the_limit_gateways_first() -> None:
    """M17: a device learns the sealing keys of others; the next contact goes on where the last ended."""
    others = [certificate(f"agent {number}") for number in range(7)]
    first, second = agent("a", *others, GATEWAY, certificates=3), agent("b")
    taken = [names_taken(meet(first, second, 100 + n).events[1]) for n in range(4)]
    assert taken[0] == ["a", "gateway", "agent 0", "agent 1", "agent 2"]
    assert taken[1:] == [["agent 3", "agent 4", "agent 5"], ["agent 6"], []]
    pair = MeshPair(first, second, 300).exchange()
    assert len(pair.sent[0]) < 300, "nothing is sent again"
    assert len(pair.sent[1]) < 300, "nor back to whom it came from"
    lost = agent("b", incarnation=8)
    assert len(names_taken(meet(first, lost, 400).events[1])) >= 4


def test_what_comes_during_a_contact_is_passed_on() -> None:
    first, second = agent("a"), agent("b")
    pair = MeshPair(first, second).exchange()
    assert first.certificates is not None
    first.certificates.add(certificate("late").der)
    first.take_revocations(revoked(3, "z").encoded)
    pair.contacts[0].refresh(pair.now)
    pair.exchange()
    assert pair.kinds(1)[-2:] == ["RevocationsTaken", "CertificateTaken"]
    assert second.revocations == 3
    sent = len(pair.sent[0])
    pair.contacts[0].refresh(pair.now)
    assert len(pair.exchange().sent[0]) == sent
    assert pair.contacts[0].closed is pair.contacts[1].closed is None


def test_a_peer_that_has_forgotten_an_originator_learns_it_again() -> None:
    first, second = agent("a", certificate("z")), agent("b")
    meet(first, second)
    forgetful = agent("b")  # the same incarnation
    first.add(bundle(originator="z"), 8, 0)
    pair = meet(first, forgetful, 200)
    assert "Declined" in pair.kinds(0)
    assert names_taken(pair.events[1]) == ["z"]
    assert "Received" in meet(first, forgetful, 300).kinds(1)


def test_a_newer_revocation_list_comes_first_and_counts_at_once() -> None:
    """M5: in several frames; the originator's bundle is declined in the same contact."""
    first, second = agent("a", frame_bytes=4_096), agent("b", certificate("z"), frame_bytes=4_096)
    second.add(bundle(originator="z"), 8, 0)
    names = ("z", *(f"agent {number}" for number in range(500)))
    assert first.take_revocations(revoked(4, *names).encoded)
    pair = meet(first, second)
    assert pair.kinds(1)[:2] == ["Introduced", "RevocationsTaken"]
    assert (second.revocations, knows(second, "z")) == (4, False)
    assert not any(isinstance(event, RevocationsTaken) for event in pair.events[0])
    assert "Received" not in pair.kinds(0)
    assert not knows(first, "z"), "what is revoked is not passed on"


@pytest.mark.parametrize("end", [0, 1])
def test_a_cut_at_each_byte_leaves_both_able_to_go_on(end: int) -> None:
    def agents() -> tuple[Carrier, Carrier]:
        one = agent("a", certificate("q"), GATEWAY, revocations=2)
        one.submit(bundle(), 0)
        one.take_receipt(receipt(bundle(9).message_id))
        return (one, agent("b")) if end else (agent("b"), one)

    whole = sum(map(len, MeshPair(*agents()).exchange().sent))
    for budget in range(1, whole + 1, 23):
        pair = MeshPair(*agents()).exchange(budget)
        assert all(event.by is EndedBy.LOSS for event in pair.events[0] if isinstance(event, Closed))
        meet(*pair.carriers, now=200)
        for one in pair.carriers:
            assert all(knows(one, name) for name in ("a", "b", "q", "gateway"))
            assert (one.revocations, len(one), len(one.receipts)) == (2, 1, 1)


class HostileToAgent:
    """A peer made of frames, against an agent that knows list 2."""

    def __init__(self, **limits: float) -> None:
        self.carrier = agent("a", revocations=2, **limits)
        self.contact = Contact(self.carrier, 100)

    def sends(self, *frames: Frame) -> list[Event]:
        return [event for frame in (HELLO, *frames) for event in self.contact.receive(encode(frame), 100)]

    def is_refused(self, detail: str) -> bool:
        closed = self.contact.closed
        return closed is not None and closed.by is EndedBy.FAULT and detail in closed.detail


def changed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("der", [b"", b"x" * 600, changed(certificate("z").der, -1), AUTHORITY.pem])
def test_a_forged_certificate_ends_the_contact(der: bytes) -> None:
    hostile = HostileToAgent()
    events = hostile.sends(Certificates((certificate("y").der, der)))
    assert names_taken(events) == ["y"], "what was good before is written down"
    assert hostile.is_refused("must not pass on")


@pytest.mark.parametrize(
    ("encoded", "detail"),
    [
        (revoked(5, "z", authority="another").encoded, "not signed by the authority"),
        (changed(revoked(5, "z").encoded, 30), "not signed by the authority"),
        (revoked(2, "z").encoded, "not newer than 2"),
        (revoked(1, "z").encoded, "not newer than 2"),
        (b"", "does not verify"),
    ],
)
def test_a_forged_or_older_list_ends_the_contact(encoded: bytes, detail: str) -> None:
    hostile = HostileToAgent()
    hostile.sends(Revocations(encoded, more=False))
    assert hostile.is_refused(detail)
    assert hostile.carrier.revocations == 2


def test_a_list_is_not_taken_twice_and_not_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile, newer = HostileToAgent(), Revocations(revoked(5, "z").encoded, more=False)
    assert any(isinstance(event, RevocationsTaken) for event in hostile.sends(newer))
    hostile.contact.receive(encode(newer), 100)
    assert hostile.is_refused("not newer than 5")
    monkeypatch.setattr("edge.mesh.contact_certificates.ENCODED_BYTES_MAX", 100_000)
    endless = HostileToAgent()
    endless.sends(*[Revocations(bytes(30_000), more=True)] * 4)
    assert endless.is_refused("more than 100000 bytes")


def test_a_list_that_another_contact_brought_meanwhile_is_no_fault() -> None:
    hostile = HostileToAgent()
    hostile.carrier.take_revocations(revoked(6, "z").encoded)
    assert [type(event).__name__ for event in hostile.sends(Revocations(revoked(5).encoded, more=False))] == [
        "Introduced"
    ]
    assert hostile.contact.closed is None
    assert hostile.carrier.revocations == 6


def test_a_flood_of_certificates_is_not_looked_at() -> None:
    """Outdated ones: each would cost a check of its signature. Known ones cost a look-up."""
    hostile = HostileToAgent(certificates_taken=3)
    old = tuple(certificate("y", now_s=NOW_S - age).der for age in range(5))
    events = hostile.sends(Certificates((old[0], old[0], *old[1:], certificate("z").der)))
    assert names_taken(events) == ["y"]
    assert hostile.contact.closed is None
    assert not knows(hostile.carrier, "z")


def test_revocation_lists_and_certificates_only_after_hello() -> None:
    contact = Contact(agent("a"), 100)
    (closed,) = contact.receive(encode(Certificates(())), 100)
    assert isinstance(closed, Closed)
    waiting = HostileToAgent()
    waiting.sends(Receipts((), more=False), Revocations(b"", more=True))
    assert waiting.is_refused("revocations is not allowed in state AWAIT_SUMMARY")


@given(st.lists(st.binary(max_size=80), max_size=5), st.booleans())
def test_any_content_is_taken_or_ends_the_contact(parts: list[bytes], is_list: bool) -> None:
    hostile = HostileToAgent()
    hostile.sends(*((Revocations(part, more=False) if is_list else Certificates((part,))) for part in parts))
    assert hostile.contact.closed is None or hostile.contact.closed.by is EndedBy.FAULT
    assert hostile.carrier.revocations == 2


def test_without_certificates_nothing_is_sent_or_taken() -> None:
    """As in the simulation."""
    plain = Carrier("a", 7, lambda name: (), lambda name, role: ())
    contact = Contact(plain, 100)
    frames = (HELLO, Certificates((b"x",)), Revocations(b"x", more=False), Receipts((), more=False))
    for frame in (*frames, Summary((), more=False)):
        contact.receive(encode(frame), 100)
    assert contact.closed is None
