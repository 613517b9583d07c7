"""Mail between two places without a route to each other: stock mail servers, two agents, a platform that both reach.

namespace a                              namespace p                               namespace b
programs ─► agent near ───── link ─────► mosquitto ◄───── link ────── agent far ◄─ programs
Postfix, Dovecot (a.example) ◄─┘                                         └─► Postfix, Dovecot (b.example)
"""

import contextlib
import smtplib
from collections.abc import Callable, Iterator
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

from tests.agent_process import AgentProcess
from tests.listener_in_namespace import Listener, Serve
from tests.mail_server import LOG_TAIL, MailServer
from tests.mosquitto import Mosquitto
from tests.namespaces import Link, Namespace, output_of
from tests.waiting import wait_for

SUBMISSION = 2525  # as in docs/agent.md
BETWEEN = 1884
STORED = 30
MAIL_BYTES = 100_000
LIFETIME_S = 12.0
ANN, BOB, GHOST, NOBODY = "ann@a.example", "bob@b.example", "ghost@b.example", "nobody@b.example"
PLATFORM = """
client_id = "{name}"
[platform]
connect_points = ["mqtt://{platform}:{broker}", "mqtts://{platform}:8883"]
connect_timeout_s = 6.0
keep_alive_s = 6
ping_timeout_s = 4.0
reconnect_most_s = 0.5
window_messages = 1_000
[store]
messages = {stored}
"""
MAIL = """
[smtp.routes]
"{there}" = "{other}"
[smtp.submission]
enabled = true
port = {submission}
message_bytes = {mail_bytes}
[smtp.relay]
enabled = true
domains = ["{here}"]
connect_timeout_s = 2.0
command_timeout_s = 5.0
data_timeout_s = 4.0
retry_first_s = 0.2
retry_most_s = 0.5
lifetime_s = {lifetime_s}
"""


class MailNetwork:
    """`with MailNetwork(directory) as network:`; both agents are connected when it begins."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.stuck: set[str] = set()
        """Message-IDs of mails that wait at the far agent for their lifetime's end."""

    def __enter__(self) -> "MailNetwork":
        with contextlib.ExitStack() as stack:
            self.a, self.p, self.b = (stack.enter_context(Namespace(name)) for name in "apb")
            self.link = Link("wan-a", self.a, self.p, "10.1.0.2", "10.1.0.1")
            Link("wan-b", self.b, self.p, "10.2.0.2", "10.2.0.1")
            self.broker = stack.enter_context(Mosquitto(self._directory, "allow_anonymous true", inside=self.p))
            self.near_mail = stack.enter_context(MailServer(self.a, "a.example", "b.example", users=["ann"], ghosts=[]))
            self.far_mail = stack.enter_context(
                MailServer(self.b, "b.example", "a.example", users=["bob", "held", "later"], ghosts=["ghost"])
            )
            self.near = self._agent("near", self.a, "10.1.0.1", "a.example", "far", "b.example")
            self.far = self._agent("far", self.b, "10.2.0.1", "b.example", "near", "a.example")
            for agent in (self.near, self.far):
                agent.start()
                stack.callback(agent.stop)
            for agent in (self.near, self.far):
                wait_for(agent.is_connected, "the agents connect")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _agent(self, name: str, inside: Namespace, platform: str, here: str, other: str, there: str) -> AgentProcess:
        fields = {"name": name, "platform": platform, "here": here, "other": other, "there": there}
        numbers = {"broker": self.broker.port, "stored": STORED, "submission": SUBMISSION, "mail_bytes": MAIL_BYTES}
        text = (PLATFORM + MAIL).format(**fields, **numbers, lifetime_s=LIFETIME_S)
        return AgentProcess(self._directory / name, text, inside)

    @contextlib.contextmanager
    def all_connections_go_through(self, serve: Serve) -> Iterator[None]:
        """What the near agent connects to is `serve`, whatever address and port it asks for. It begins
        and ends without a connection."""
        with Listener(self.p, serve, BETWEEN), self.p.redirect(self.link.name, BETWEEN):
            self.near.stop()
            self.near.start()
            yield

    # -- programs ------------------------------------------------------------------------------------------------------

    def submit(self, content: bytes, recipient: str = BOB) -> None:
        """With the standard library, to the near agent; it must be accepted."""
        self.a.call(send, SUBMISSION, ANN, recipient, content)

    def swaks(self, content: bytes, recipient: str = BOB) -> tuple[int, str]:
        """With swaks, to the near agent: its exit status, and the conversation as it shows it."""
        to = ["--server", f"127.0.0.1:{SUBMISSION}", "--from", ANN, "--to", recipient]
        return output_of(self.a.command("swaks", *to, "--data", "-"), content)

    def msmtp(self, content: bytes, recipient: str = BOB) -> tuple[int, str]:
        """With msmtp, to the near agent: its exit status, and what it says."""
        to = ["--host=127.0.0.1", f"--port={SUBMISSION}", f"--from={ANN}", recipient]
        return output_of(self.a.command("msmtp", *to), content.replace(b"\r\n", b"\n"))

    def answer(self, content: bytes, *, sender: str = BOB, recipient: str = ANN) -> None:
        """From the far side, through its Postfix, which gives it to the far agent."""
        self.b.call(send, 25, sender, recipient, content)

    # -- what has come -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Returns once nothing is under way any more: whatever came twice has come by then."""

        def is_settled() -> bool:
            near, far = self.near.status(), self.far.status()
            waiting = near["outbox"], near["relay"], far["outbox"], far["relay"]
            return (
                sum(part["messages"] for part in waiting) == sum(not self._reports(name) for name in self.stuck)
                and self.near_mail.is_idle()
                and self.far_mail.is_idle()
            )

        self._wait(is_settled, "all mail is delivered")

    def arrives(self, name: str, content: bytes, user: str = "bob", timeout_s: float = 60.0) -> bytes:
        """The mail with this Message-ID as it has arrived: once, with all submitted bytes, behind the fields that
        servers have put in front."""
        server = self.near_mail if user == "ann" else self.far_mail
        self._wait(lambda: bool(server.copies(user, name)), f"{name} arrives", timeout_s)
        self.settle()
        (copy,) = server.copies(user, name)
        assert copy.endswith(b"\r\n" + content), (name, copy[-len(content) - 100 :])
        return copy

    def report(self, name: str, timeout_s: float = 60.0) -> Message:
        """The only report to Ann about the mail with this Message-ID, from the null sender (RFC 3464)."""
        self._wait(lambda: bool(self._reports(name)), f"a report about {name} arrives", timeout_s)
        (report,) = self._reports(name)
        assert report.startswith(b"Return-Path: <>\r\n"), report
        return BytesParser().parsebytes(report)

    def _reports(self, name: str) -> list[bytes]:
        mails = self.near_mail.fetched("ann")
        return [mail for mail in mails if b"multipart/report" in mail and f"<{name}@a.example>".encode() in mail]

    def _wait(self, condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
        """As `wait_for`; if it fails, pytest shows what all parts have logged."""
        try:
            wait_for(condition, what, timeout_s)
        except AssertionError:
            for part in (self.near, self.far, self.near_mail, self.far_mail):
                print(part.log()[-LOG_TAIL:])  # noqa: T201
            raise


def mail(name: str, sender: str = ANN, recipient: str = BOB) -> bytes:
    """A mail whose bytes are easily changed on the way: folded, repeated and empty fields, dots, long lines, 8 bits."""
    domain = sender.partition("@")[2]
    lines = (
        f"From: Ann <{sender}>",
        f"To: {recipient}",
        "Date: Fri, 27 Nov 2026 12:00:00 +0000",
        "Subject: a folded",
        "\t subject ,  with   spaces",
        f"message-ID: <{name}@{domain}>",
        "MIME-Version: 1.0",
        "Content-Type: text/plain; charset=utf-8",
        "Content-Transfer-Encoding: 8bit",
        "X-Empty:",
        "X-Twice: 1",
        "X-Twice: 2",
        "",
        "Grüße \N{SNOWMAN}",
        ".",
        "..two dots",
        ".hidden",
        "From here",
        "trailing  \t",
        "x" * 990,
        "",
        "",
        "end",
    )
    return "".join(f"{line}\r\n" for line in lines).encode()


def send(port: int, sender: str, recipient: str, content: bytes) -> None:
    """Submits a mail, for a thread in a namespace."""
    with smtplib.SMTP("127.0.0.1", port, timeout=30) as client:
        client.sendmail(sender, [recipient], content, mail_options=["BODY=8BITMIME"])
