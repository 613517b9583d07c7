"""Stock Postfix and Dovecot in a network namespace: mail for one domain, in Maildirs, fetched over IMAP.

Both have their configuration and data in a directory of their own, run in the foreground, and end with the test;
/etc/postfix, /etc/dovecot and the system's services are not touched. Postfix answers on port 25 of the namespace's
loopback address, Dovecot on port 143. Postfix asks :class:`Policy` about recipients, so that a test says what it
answers, without a reload.
"""

import asyncio
import contextlib
import imaplib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path
from types import TracebackType

from tests.documents import ROOT, code_blocks
from tests.listener_in_namespace import Listener
from tests.namespaces import Namespace
from tests.waiting import wait_for

PASSWORD = "secret"
POLICY_PORT = 10031
PROGRAMS = ("postfix", "dovecot")
START_S = STOP_S = 30.0
LOG_TAIL = 10_000

MAIN = """
compatibility_level = 3.6
queue_directory = {directory}/queue
data_directory = {directory}/data
maillog_file = {directory}/postfix.log
maillog_file_prefixes = {directory}
mail_owner = postfix
setgid_group = postdrop
myhostname = mail.{domain}
myorigin = {domain}
mydestination =
alias_maps =
local_recipient_maps =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
smtp_dns_support_level = disabled
smtpd_peername_lookup = no
local_header_rewrite_clients =
virtual_mailbox_domains = {domain}
virtual_mailbox_maps = texthash:{directory}/conf/mailboxes
virtual_transport = lmtp:unix:private/dovecot
smtpd_recipient_restrictions = check_policy_service inet:127.0.0.1:{policy}, permit_mynetworks, reject
smtpd_relay_restrictions = permit_mynetworks, reject
smtpd_end_of_data_restrictions = check_policy_service inet:127.0.0.1:{policy}
queue_run_delay = 1s
minimal_backoff_time = 1s
maximal_backoff_time = 2s
"""
# What docs/agent.md says about Postfix.
DOCUMENTED = next(
    block for block in code_blocks((ROOT / "docs/agent.md").read_text(), "ini") if block.startswith("relay_domains")
)
# The services of Debian's master.cf that this needs, none in a chroot.
MASTER = """
smtp inet n - n - - smtpd
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
lmtp unix - - n - - lmtp
error unix - - n - - error
retry unix - - n - - error
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"""
DOVECOT = """
base_dir = {directory}/run
state_dir = {directory}/run
log_path = {directory}/dovecot.log
protocols = imap lmtp
ssl = no
disable_plaintext_auth = no
mail_location = maildir:{directory}/mail/%u
mail_uid = mail
mail_gid = mail
first_valid_uid = 1
first_valid_gid = 1
passdb {{
  driver = passwd-file
  args = username_format=%u {directory}/conf/users
}}
userdb {{
  driver = passwd-file
  args = username_format=%u {directory}/conf/users
}}
service imap-login {{
  inet_listener imap {{
    address = 127.0.0.1
    port = 143
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service lmtp {{
  unix_listener {directory}/queue/private/dovecot {{
    mode = 0600
    user = postfix
  }}
}}
"""


class Policy:
    """Answers Postfix (SMTPD_POLICY_README): `actions`: what it does with a recipient; `held`: those whose mail gets no
    answer after its final dot as long as they are in it; `asked`: how often it was asked about a recipient."""

    def __init__(self) -> None:
        self.actions: dict[str, str] = {}
        self.held: set[str] = set()
        self.asked: dict[str, int] = defaultdict(int)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while block := await reader.readuntil(b"\n\n"):
            fields = dict(line.split("=", 1) for line in block.decode().split("\n") if "=" in line)
            writer.write(f"action={await self._action(fields)}\n\n".encode())
            await writer.drain()

    async def _action(self, fields: dict[str, str]) -> str:
        recipient = fields.get("recipient", "")
        if fields["protocol_state"] == "RCPT":
            self.asked[recipient] += 1
            return self.actions.get(recipient, "DUNNO")
        while recipient in self.held:
            await asyncio.sleep(0.05)
        return "DUNNO"


class MailServer:
    """`users` of `domain` have mailboxes; Postfix takes mail for `ghosts` as well, and Dovecot refuses it, so that
    Postfix has to send a bounce. Postfix gives mail for the domain `elsewhere` to the agent, as docs/agent.md says."""

    def __init__(self, inside: Namespace, domain: str, elsewhere: str, *, users: list[str], ghosts: list[str]) -> None:
        self.inside, self.domain, self._elsewhere, self.policy = inside, domain, elsewhere, Policy()
        self._users = [f"{name}@{domain}" for name in users]
        self._mailboxes = self._users + [f"{name}@{domain}" for name in ghosts]
        self._fields = {"domain": domain, "policy": POLICY_PORT}

    # -- life ----------------------------------------------------------------------------------------------------------

    def __enter__(self) -> "MailServer":
        """If it fails, pytest shows the log."""
        with contextlib.ExitStack() as stack:
            # Not pytest's directory: other users than root must get there, and paths of sockets are short.
            self.directory = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="mail-", ignore_cleanup_errors=True))
            )
            self._configure()
            stack.enter_context(Listener(self.inside, self.policy.serve, POLICY_PORT, "127.0.0.1"))
            conf = f"{self.directory}/conf"
            self._dovecot = self._launch(stack, "dovecot", "-F", "-c", f"{conf}/dovecot.conf")
            self.inside.run("postfix", "-c", conf, "check")  # makes the queue's directories
            master = self.inside.run("postconf", "-c", conf, "-h", "daemon_directory").strip() + "/master"
            self._postfix = self._launch(stack, master, "-c", conf, "-d")
            try:
                wait_for(self._is_ready, "Postfix and Dovecot answer", START_S)
            except AssertionError:
                print(self.log())  # noqa: T201
                raise
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def log(self) -> str:
        """What both of them and their starters have said."""
        names = ("output", "dovecot.log", "postfix.log")
        files = [self.directory / name for name in names]
        return "".join(file.read_text()[-LOG_TAIL:] for file in files if file.exists())

    def freeze(self, is_frozen: bool) -> None:
        """Postfix as if hung: the kernel accepts connections, and nobody says anything."""
        number = signal.SIGSTOP if is_frozen else signal.SIGCONT
        os.killpg(self._postfix.pid, number)

    def is_idle(self) -> bool:
        """Whether nothing is in Postfix's queue."""
        found = self.inside.run("postqueue", "-c", f"{self.directory}/conf", "-p")
        return "Mail queue is empty" in found

    # -- mailboxes -----------------------------------------------------------------------------------------------------

    def fetched(self, user: str) -> list[bytes]:
        """All mail of a user, as the standard library's IMAP client fetches it."""
        return self.inside.call(self._fetch, user)

    def copies(self, user: str, message_id: str) -> list[bytes]:
        """The mails of a user with a Message-ID."""
        line = re.compile(rb"(?im)^Message-ID:\s*<?" + re.escape(message_id.encode()) + rb"\b")
        return [mail for mail in self.fetched(user) if line.search(mail.partition(b"\r\n\r\n")[0])]

    def curl(self, user: str, number: int) -> bytes:
        """A mail as curl fetches it, by its number from 1."""
        address = f"imap://127.0.0.1/INBOX;MAILINDEX={number}"
        command = self.inside.command(
            "curl", "--silent", "--fail", "--user", f"{user}@{self.domain}:{PASSWORD}", address
        )
        return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout

    def _fetch(self, user: str) -> list[bytes]:
        with imaplib.IMAP4("127.0.0.1", 143, timeout=30) as client:
            client.login(f"{user}@{self.domain}", PASSWORD)
            _, counted = client.select("INBOX", readonly=True)
            if counted == [b"0"]:
                return []
            _, found = client.fetch("1:*", "(BODY.PEEK[])")
            return [part[1] for part in found if isinstance(part, tuple)]

    # -- inside --------------------------------------------------------------------------------------------------------

    def _configure(self) -> None:
        directory = self.directory
        directory.chmod(0o755)
        for name in ("conf", "queue", "data", "mail", "run"):
            (directory / name).mkdir()
        fields = self._fields | {"directory": directory}
        mailboxes = "".join(f"{address} -\n" for address in self._mailboxes)
        users = "".join(f"{address}:{{PLAIN}}{PASSWORD}::::::\n" for address in self._users)
        for name, text in (
            ("main.cf", MAIN.format(**fields) + DOCUMENTED.replace("example.org", self._elsewhere)),
            ("master.cf", MASTER),
            ("dovecot.conf", DOVECOT.format(**fields)),
            ("mailboxes", mailboxes),
            ("users", users),
        ):
            (directory / "conf" / name).write_text(text)
        shutil.chown(directory / "data", "postfix")
        shutil.chown(directory / "mail", "mail", "mail")
        (directory / "queue/private").mkdir(mode=0o700)
        shutil.chown(directory / "queue/private", "postfix")

    def _launch(self, stack: contextlib.ExitStack, *argv: str) -> "subprocess.Popen[bytes]":
        """Until the end of the stack."""
        with (self.directory / "output").open("ab") as output:
            command = self.inside.command(*argv)
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        stack.callback(_stop, process)
        return process

    def _is_ready(self) -> bool:
        assert self._dovecot.poll() is self._postfix.poll() is None, "one of them has ended"
        try:
            self.inside.call(self._fetch, self._users[0].partition("@")[0])
            (self.directory / "queue/public/pickup").stat()
        except (OSError, imaplib.IMAP4.error):
            return False
        return True


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Ends it and its process group; its children might write into a directory that is about to be removed."""
    process.terminate()
    process.wait(STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
