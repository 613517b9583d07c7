"""Reports to senders about mail that was not delivered: delivery status notifications (RFC 3464, RFC 6533).

A report has the null sender, and mail from the null sender gets none: there is no bounce of a bounce (RFC 5321, 4.5.5).
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
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
    utf8 = not all(address.isascii() for address in (mail.sender, *(failure.address for failure in failures)))
    boundary = f"report-{identifier}"
    head = {
        "From": f"Mail Delivery System <MAILER-DAEMON@{reporter}>",
        "To": mail.sender,
        "Subject": "Undelivered Mail Returned to Sender",
        "Date": format_datetime(at),
        "Message-ID": f"<{identifier}@{reporter}>",
        "Auto-Submitted": "auto-replied",  # RFC 3834
        "MIME-Version": "1.0",
        "Content-Type": f'multipart/report; report-type=delivery-status; boundary="{boundary}"',
    }
    international = "global-" if utf8 else ""
    charset = "utf-8" if utf8 else "us-ascii"
    parts = (
        (f"text/plain; charset={charset}", _text(mail, failures)),
        (f"message/{international}delivery-status", _status(failures, reporter, utf8=utf8)),
        (f"text/rfc822-headers; charset={charset}", _header(mail.content)),
    )
    lines = [_fields(head), ""]
    for content_type, body in parts:
        encoding = "8bit" if utf8 else "7bit"
        fields = {"Content-Type": content_type, "Content-Transfer-Encoding": encoding}
        lines += [f"--{boundary}", _fields(fields), "", body]
    text = "\n".join([*lines, f"--{boundary}--", ""])
    content = text.replace("\n", "\r\n").encode(*(("utf-8", "replace") if utf8 else ("ascii", "backslashreplace")))
    return Mail(identifier, "", (mail.sender,), content, utf8)


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


def _status(failures: Sequence[Failure], reporter: str, *, utf8: bool) -> str:
    """The fields of the message and, after an empty line each, of the recipients (RFC 3464, 2.1)."""
    groups = [{"Reporting-MTA": f"dns; {reporter}"}]
    for failure in failures:
        group = {
            "Final-Recipient": f"{'utf-8' if utf8 else 'rfc822'}; {failure.address}",
            "Action": "failed",
            "Status": _status_code(failure),
        }
        if failure.from_server:
            group["Diagnostic-Code"] = f"smtp; {_line(failure.reply)}"
        groups.append(group)
    return "\n\n".join(map(_fields, groups)) + "\n"


def _fields(fields: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in fields.items())


def _status_code(failure: Failure) -> str:
    if failure.is_expired:
        return EXPIRED_STATUS
    found = _ENHANCED.match(failure.reply)
    return found[1] if found is not None and found[1].startswith("5") else REFUSED_STATUS


def head_of(content: bytes) -> bytes:
    """The header of a mail: what a report about it needs of its content."""
    return re.split(rb"\r?\n\r?\n", content, maxsplit=1)[0][:_HEADER_BYTES_MAX]


def _header(content: bytes) -> str:
    """The mail's header, for its sender to recognise it."""
    lines = head_of(content).decode("utf-8", errors="replace").splitlines()
    return "\n".join("".join(c if c.isprintable() or c == "\t" else " " for c in line) for line in lines) + "\n"


def _line(text: str) -> str:
    """What a server says, on one line, bounded."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * _TEXT_MAX]).split())[:_TEXT_MAX]
