"""Network namespaces of a test's own: links between them that a test takes down and moves, and rules in them.

A namespace lives as long as a process that waits for its input to end: it is gone with the test's process, however
that ends. `Namespace.call` runs a function in a thread that is in the namespace, so the sockets it opens are, too.
Only root can do this; `required()` skips the tests of anybody else, with the reason.
"""

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

import pytest

T = TypeVar("T")
NEWNET = 0x40000000  # CLONE_NEWNET (setns(2))
PROGRAMS = ("ip", "nft", "nsenter", "unshare", "setpriv")
SBIN = "/usr/sbin:/sbin:/usr/local/sbin"
_libc = ctypes.CDLL(None, use_errno=True)


def program(name: str) -> str | None:
    """The path of a program, which may be where Debian has those of administrators."""
    return shutil.which(name) or shutil.which(name, path=SBIN)


def required(*programs: str) -> None:
    """Call it at the top of a module: skips its tests if they cannot have namespaces, or a program is missing."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root", allow_module_level=True)
    missing = [name for name in (*PROGRAMS, *programs) if program(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} missing: install them, see CONTRIBUTING.md", allow_module_level=True)
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no network namespaces here: {tried.stderr.strip()}", allow_module_level=True)


class Namespace:
    """`with Namespace("a") as a:`; it has a loopback interface, and no other until a :class:`Link` brings one."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> "Namespace":
        holder = ["unshare", "--net", "sh", "-c", "echo; exec cat"]
        self._holder = subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        self._holder.stdout.readline()  # it is in its namespace now
        self._thread = ThreadPoolExecutor(1, f"namespace-{self.name}", enter, (self.pid,))
        self.run("ip", "link", "set", "lo", "up")
        self.run("sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward")  # new ones have the host's setting
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.shutdown()
        self._holder.communicate()

    @property
    def pid(self) -> int:
        """A process in it, by which others name it."""
        return self._holder.pid

    def command(self, *argv: str) -> list[str]:
        """The command line that runs a program in it; the process ends with the thread that starts it."""
        found = program(argv[0]) or argv[0]
        return ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/proc/{self.pid}/ns/net", found, *argv[1:]]

    def run(self, *argv: str, text: str = "") -> str:
        """Runs a program in it to its end, with `text` as its input; returns its output. It must succeed."""
        done = subprocess.run(self.command(*argv), input=text, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, f"{' '.join(argv)} in {self.name}: {done.stderr}{done.stdout}"
        return done.stdout

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Calls a function in a thread that is in it; one at a time."""
        return self._thread.submit(function, *arguments).result()

    # -- rules ---------------------------------------------------------------------------------------------------------

    def black_hole(self) -> AbstractContextManager[None]:
        """What comes over the network and what goes out disappears, and nobody is told."""
        return self._filter("drop")

    def loss(self, percent: int) -> AbstractContextManager[None]:
        """So much of what comes and of what goes is lost, at random."""
        return self._filter(f"numgen random mod 100 < {percent} drop")

    def redirect(self, interface: str, port: int) -> AbstractContextManager[None]:
        """New connections that come over an interface, to any port of any address, reach `port` here."""
        rule = f'iifname "{interface}" tcp dport 1-65535 redirect to :{port}'
        return self._rules(f"chain inbound {{\ntype nat hook prerouting priority dstnat\n{rule}\n}}")

    def _filter(self, verdict: str) -> AbstractContextManager[None]:
        return self._rules(
            f'chain inbound {{\ntype filter hook input priority 0\niifname != "lo" {verdict}\n}}\n'
            f'chain outbound {{\ntype filter hook output priority 0\noifname != "lo" {verdict}\n}}'
        )

    @contextlib.contextmanager
    def _rules(self, chains: str) -> Iterator[None]:
        self.run("nft", "-f", "-", text=f"flush ruleset\ntable inet test {{\n{chains}\n}}\n")
        try:
            yield
        finally:
            self.run("nft", "flush", "ruleset")


@dataclass
class Link:
    """A network cable: `name` is the interface at either end, with the addresses `here_ip` and `there_ip` in a network
    of their own."""

    name: str
    here: Namespace
    there: Namespace
    here_ip: str
    there_ip: str

    def __post_init__(self) -> None:
        ends = ["netns", str(self.here.pid), "type", "veth", "peer", "name", self.name, "netns", str(self.there.pid)]
        subprocess.run(["ip", "link", "add", "name", self.name, *ends], check=True)
        _up(self.here, self.name, self.here_ip)
        _up(self.there, self.name, self.there_ip)

    def down(self) -> None:
        """There is no route any more; both ends notice."""
        self.here.run("ip", "link", "set", self.name, "down")

    def up(self) -> None:
        self.here.run("ip", "link", "set", self.name, "up")

    def move(self, there: Namespace, there_ip: str) -> None:
        """The end `there` leaves its namespace for another one, and gets an address there."""
        self.there.run("ip", "link", "set", self.name, "netns", str(there.pid))
        self.there, self.there_ip = there, there_ip
        _up(there, self.name, there_ip)


def enter(pid: int) -> None:
    """Moves this thread into the network namespace of a process."""
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        if _libc.setns(descriptor, NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(descriptor)


def _up(namespace: Namespace, name: str, ip: str) -> None:
    for words in (["addr", "add", f"{ip}/24", "dev", name], ["link", "set", name, "up"]):
        namespace.run("ip", *words)


def output_of(argv: Sequence[str], content: bytes = b"") -> tuple[int, str]:
    """The exit status of a program, and what it said."""
    done = subprocess.run(
        argv, input=content, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
    )
    return done.returncode, done.stdout.decode(errors="replace")


def can_connect(host: str, port: int, timeout_s: float = 0.5) -> bool:
    """Whether there is a way, for a thread in a namespace."""
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError:
        return False
    return True
