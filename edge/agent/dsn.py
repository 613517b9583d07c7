"""Reports to senders about mail that was not delivered: delivery status notifications (RFC 3464, RFC 6533).

A report has the null sender, and mail from the null sender gets none: there is no bounce of a bounce (RFC 5321, 4.5.5).
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.message import Message
from email.mime.multipart import MIMEMultipart
from email.mime.nonmultipart import MIMENonMultipart
from email.mime.text import MIMEText
from email.policy import SMTP, SMTPUTF8
from email.utils import format_datetime
from typing import Final

from edge.agent.envelope import Mail

_HEADER_BYTES_MAX: Final = 32_768
_TEXT_MAX: Final = 500
_ENHANCED: Final = re.compile(r"(?:\d{3}[ -])?([245]\.\d{1,3}\.\d{1,3})\b")
EXPIRED_STATUS: Final = "4.4.7"  # delivery time expired (RFC 3463)
REFUSED_STATUS: Final = "5.0.0"


@dataclass(frozen=True)
class Failure:
    """A recipient who does not get the mail. `reply`: the server's answer, or our reason; `is_expired`: the mail's
    lifetime ended; else it was refused. `from_server`: the answer is an SMTP server's."""

    address: str
    reply: str
    is_expired: bool
    from_server: bool = False


def report(mail: Mail, failures: Sequence[Failure], *, reporter: str, at: datetime) -> Mail | None:
    """The report to the mail's sender; None if it has the null sender.

    `mail.content` needs only its header. `reporter`: this host's name. Its id follows from the mail's id and the
    recipients: the same report, made again, is recognised as a repetition.
    """
    if not mail.sender:
        return None
    identifier = report_id(mail.id, (failure.address for failure in failures))
    addresses = [mail.sender, *(failure.address for failure in failures)]
    utf8 = not all(address.isascii() for address in addresses)
    whole = MIMEMultipart("report", report_type="delivery-status", policy=SMTPUTF8 if utf8 else SMTP)
    whole["From"] = f"Mail Delivery System <MAILER-DAEMON@{reporter}>"
    whole["To"] = mail.sender
    whole["Subject"] = "Undelivered Mail Returned to Sender"
    whole["Date"] = format_datetime(at)
    whole["Message-ID"] = f"<{identifier}@{reporter}>"
    whole["Auto-Submitted"] = "auto-replied"  # RFC 3834
    whole.attach(MIMEText(_text(mail, failures), "plain", "utf-8"))
    whole.attach(_status(failures, reporter, at, utf8=utf8))
    whole.attach(_header(mail.content))
    return Mail(identifier, "", (mail.sender,), whole.as_bytes(policy=SMTPUTF8 if utf8 else SMTP), utf8)


def report_id(identifier: str, addresses: Iterable[str]) -> str:
    """The id of the report about these recipients of a mail."""
    text = "\n".join(("report", identifier, *sorted(addresses)))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _text(mail: Mail, failures: Sequence[Failure]) -> str:
    lines = ["Your mail could not be delivered to these recipients:", ""]
    for failure in failures:
        what = "it was not delivered in time" if failure.is_expired else "it was refused"
        lines.append(f"{failure.address}: {what}: {_line(failure.reply)}")
    return "\n".join([*lines, "", f"The message has the id {mail.id}.", ""])


def _status(failures: Sequence[Failure], reporter: str, at: datetime, *, utf8: bool) -> Message:
    groups = [{"Reporting-MTA": f"dns; {reporter}", "Arrival-Date": format_datetime(at)}]
    for failure in failures:
        group = {
            "Final-Recipient": f"{'utf-8' if utf8 else 'rfc822'}; {failure.address}",
            "Action": "failed",
            "Status": _status_code(failure),
        }
        if failure.from_server:
            group["Diagnostic-Code"] = f"smtp; {_ascii(_line(failure.reply))}"
        groups.append(group)
    text = "\r\n\r\n".join("\r\n".join(f"{name}: {value}" for name, value in group.items()) for group in groups)
    part = MIMENonMultipart("message", "global-delivery-status" if utf8 else "delivery-status")
    if utf8:
        part["Content-Transfer-Encoding"] = "8bit"
    part.set_payload((text + "\r\n").encode().decode("ascii", "surrogateescape"))
    return part


def _status_code(failure: Failure) -> str:
    if failure.is_expired:
        return EXPIRED_STATUS
    found = _ENHANCED.match(failure.reply)
    return found[1] if found is not None and found[1].startswith("5") else REFUSED_STATUS


def _header(content: bytes) -> Message:
    """The mail's header, for its sender to recognise it."""
    head = re.split(rb"\r?\n\r?\n", content, maxsplit=1)[0][:_HEADER_BYTES_MAX]
    text = head.decode("utf-8", errors="replace")
    return MIMEText(text, "rfc822-headers", "us-ascii" if text.isascii() else "utf-8")


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _line(text: str) -> str:
    """What a server says, on one line, bounded."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * _TEXT_MAX]).split())[:_TEXT_MAX]
