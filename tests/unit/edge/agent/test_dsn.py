"""Reports: RFC 3464, for people and programs; none to the null sender (M16)."""

import email
import email.policy
from datetime import UTC, datetime

from edge.agent.dsn import Failure, report
from edge.agent.envelope import Mail

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MAIL = Mail("a" * 32, "ann@a.example", ("bob@b.example",), b"Subject: hi\r\nMessage-ID: <1@a>\r\n\r\nsecret\r\n")
REFUSED = Failure("bob@b.example", "550 5.1.1 no such user\r\nX-Injected: yes", False, True)
EXPIRED = Failure("eve@b.example", "the server cannot be reached", True)


def test_a_report() -> None:
    found = report(MAIL, [REFUSED, EXPIRED], reporter="far.example", at=AT)
    assert found is not None
    assert (found.sender, found.recipients, found.smtputf8) == ("", ("ann@a.example",), False)
    assert found.content.isascii()
    whole = email.message_from_bytes(found.content, policy=email.policy.default)
    assert whole.get_content_type() == "multipart/report"
    assert whole.get_param("report-type") == "delivery-status"
    assert whole["Auto-Submitted"] == "auto-replied"
    text, status, header = whole.iter_parts()
    assert "bob@b.example" in text.get_content()
    assert status.get_content_type() == "message/delivery-status"
    head, first, second = status.get_payload()
    assert head["Reporting-MTA"] == "dns; far.example"
    assert [first[name] for name in ("Final-Recipient", "Action", "Status")] == [
        "rfc822; bob@b.example",
        "failed",
        "5.1.1",
    ]
    assert first["Diagnostic-Code"] == "smtp; 550 5.1.1 no such user X-Injected: yes"
    assert (second["Status"], second["Diagnostic-Code"]) == ("4.4.7", None)
    assert header.get_content_type() == "text/rfc822-headers"
    assert b"<1@a>" in header.get_payload(decode=True)
    assert b"secret" not in found.content


def test_no_report_about_a_report() -> None:
    first = report(MAIL, [REFUSED], reporter="far", at=AT)
    assert first is not None
    assert report(first, [REFUSED], reporter="far", at=AT) is None


def test_the_same_report_has_the_same_id() -> None:
    one, again, other = (report(MAIL, [failure], reporter="far", at=AT) for failure in (REFUSED, REFUSED, EXPIRED))
    assert one is not None
    assert again is not None
    assert other is not None
    assert one.id == again.id != other.id


def test_internationalised_addresses() -> None:
    found = report(MAIL, [Failure("bjørn@b.example", "550 no", False, True)], reporter="far", at=AT)
    assert found is not None
    assert found.smtputf8
    assert b"message/global-delivery-status" in found.content
    assert "utf-8; bjørn@b.example".encode() in found.content
