"""What becomes of a mail's recipients after an attempt to relay it: decided without server, clock and disk (M16).

WAITING --final dot----> SENDING --2xx--> DELIVERED
   ▲  │                    │ ├--5xx--> REFUSED        WAITING --5xx to MAIL, RCPT--> REFUSED
   └──┘ 4xx, no connection │ └--4xx--> WAITING        WAITING, HELD --lifetime over--> EXPIRED
                           └--no answer, or killed--> WAITING (once) | HELD

SMTP cannot be exactly once: if no answer to the final dot arrives, nobody knows whether the server has the mail
(RFC 5321, 4.5.3.2.6). It is *doubtful* then: sent once more, with the same content and Message-ID, or held. One that is
doubtful for the second time is held.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

WAITING: Final = "waiting"
SENDING: Final = "sending"
DELIVERED: Final = "delivered"
REFUSED: Final = "refused"
EXPIRED: Final = "expired"
HELD: Final = "held"

_DOUBLINGS_MAX: Final = 32


@dataclass(frozen=True)
class Reply:
    """A server's answer; `text` may begin with an enhanced status code (RFC 3463). `to_rcpt`: it answers RCPT."""

    code: int
    text: str
    to_rcpt: bool = False

    @property
    def is_permanent(self) -> bool:
        """Whether it refuses for good. 552 to RCPT is how old servers say that one mail has too many recipients; it
        counts as 452 (RFC 5321, 4.5.3.1.10)."""
        return 500 <= self.code < 600 and not (self.to_rcpt and self.code == 552)

    def __str__(self) -> str:
        return f"{self.code} {self.text}"


@dataclass(frozen=True)
class Attempt:
    """What an attempt has shown. `replies`: by address, the answer that decides. `doubtful`: addresses for which no
    answer to the final dot has arrived. `problem`: why there is no more; `is_unreachable`: there was no connection."""

    replies: Mapping[str, Reply] = field(default_factory=dict)
    doubtful: Sequence[str] = ()
    problem: str = ""
    is_unreachable: bool = False


@dataclass(frozen=True)
class Recipient:
    """A recipient of a stored mail; `doubtful` counts how often it was; `is_reported`: the sender knows of its end."""

    address: str
    state: str = WAITING
    doubtful: int = 0
    reply: str = ""
    is_reported: bool = False


def after_attempt(recipients: Sequence[Recipient], attempt: Attempt, *, hold: bool) -> list[Recipient]:
    """The recipients that were waiting, in their new states."""
    found = []
    for one in recipients:
        reply = attempt.replies.get(one.address)
        if one.address in attempt.doubtful:
            found.append(in_doubt(one, attempt.problem, hold=hold))
        elif reply is None:
            found.append(Recipient(one.address, WAITING, one.doubtful, attempt.problem))
        else:
            found.append(Recipient(one.address, _state(reply), one.doubtful, str(reply)))
    return found


def in_doubt(one: Recipient, problem: str, *, hold: bool) -> Recipient:
    """A recipient for whom nobody knows whether the server took the mail."""
    again = not hold and one.doubtful == 0
    return Recipient(one.address, WAITING if again else HELD, one.doubtful + 1, problem)


def expired(one: Recipient) -> Recipient:
    """A recipient when the mail's lifetime has ended."""
    problem = one.reply or "the mail server could not be reached"
    if one.state == HELD or one.doubtful:
        problem = f"it may have been delivered: {problem}"
    return Recipient(one.address, EXPIRED, one.doubtful, problem)


def retry_delay_s(attempts: int, first_s: float, most_s: float) -> float:
    """The pause after this many failed attempts, 1 or more: doubled each time."""
    return float(min(most_s, first_s * 2 ** min(attempts - 1, _DOUBLINGS_MAX)))


def _state(reply: Reply) -> str:
    if 200 <= reply.code < 300:
        return DELIVERED
    return REFUSED if reply.is_permanent else WAITING
