"""The commands about gateways and shards: whom they ask, what they show, how they fail (G4, G14, R5)."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.cli import gateway
from jobs.stack.requests import Answer
from jobs.stack.restarting import requests
from tests.unit.jobs.cli.cluster_server import FakeCluster, FakeGateways

Run = Callable[..., int]

NAMES = ("gw-1", "gw-2", "gw-3")
COMMANDS = (
    ["gateways"],
    ["shards"],
    ["shard", "move", "0", "gw-2"],
    ["gateway", "drain", "gw-1"],
    ["gateway", "replace", "gw-1"],
)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(NAMES)


@pytest.fixture
def fakes(cluster: FakeCluster) -> Iterator[FakeGateways]:
    with FakeGateways(cluster) as served:
        yield served


@pytest.fixture
def stack(fakes: FakeGateways, tmp_path: Path) -> FakeGateways:
    fakes.run_as_stack(tmp_path)
    return fakes


def said(capfd: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in capfd.readouterr().out.splitlines()]


def test_the_gateways_with_their_load(run: Run, stack: FakeGateways, capfd: pytest.CaptureFixture[str]) -> None:
    stack.cluster.states["gw-3"] = "silent"
    assert run("gateways") == 0
    lines = said(capfd)
    assert ["gw-1", "up", "rack-1", "gw-1.example:1883", "12", "0.25", "180", "MB", "2", "2"] in lines
    assert ["gw-3", "silent", "rack-1", "gw-3.example:1883", "1", "3"] in lines, "its last load is of no use"


def test_the_shards_with_the_phase_at_their_owners(
    run: Run, stack: FakeGateways, capfd: pytest.CaptureFixture[str]
) -> None:
    stack.cluster.owners[3] = None
    stack.lose("gw-3")
    assert run("shards") == 0
    lines = said(capfd)
    behind = ["(0.2", "s", "behind)"]
    assert ["0", "gw-1", "1", "serving", "gw-2", *behind[:-1], "behind),", "gw-3"] in lines
    assert ["1", "gw-2", "1", "serving", "gw-1", *behind[:-1], "behind),", "gw-3"] in lines
    both = ["gw-1", *behind[:-1], "behind),", "gw-2", *behind]
    assert ["2", "gw-3", "1", *both] in lines, "a phase that nobody can tell is not guessed"
    assert ["3", "1", "none", *both[:-1], "behind),", "gw-3"] in lines


@pytest.mark.parametrize(
    ("lag", "shown"),
    [
        ({"is_warm": False, "behind_records": 9, "behind_s": 61.24}, "gw-2 (cold, 61.2 s behind)"),
        ({"is_warm": False, "behind_records": None, "behind_s": None}, "gw-2 (cold)"),
        (None, "gw-2"),
    ],
)
def test_a_standby_says_how_far_behind_it_is(
    run: Run, stack: FakeGateways, capfd: pytest.CaptureFixture[str], lag: dict[str, object] | None, shown: str
) -> None:
    """Q7. One of an earlier release, or that has just become a standby, says nothing."""
    stack.cluster.lag = lag
    assert run("shards") == 0
    assert f"serving  {shown}, gw-3" in capfd.readouterr().out
    assert run("shards", "--json") == 0
    first = json.loads(capfd.readouterr().out)["shards"][0]
    assert first["lags"] == ({} if lag is None else {"gw-2": lag, "gw-3": lag})


def test_programs_get_json(run: Run, stack: FakeGateways, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("gateways", "--json") == 0
    assert [one["name"] for one in json.loads(capfd.readouterr().out)["gateways"]] == list(NAMES)
    assert run("shards", "--json") == 0
    assert [one["owner"] for one in json.loads(capfd.readouterr().out)["shards"]] == ["gw-1", "gw-2", "gw-3", "gw-1"]


@pytest.mark.parametrize("command", COMMANDS[:4], ids=" ".join)
def test_any_gateway_that_answers_will_do(run: Run, stack: FakeGateways, command: list[str]) -> None:
    """One that is gone, or is just starting, is passed over."""
    stack.cluster.owners = ["gw-3", "gw-3"]
    stack.lose("gw-1")
    stack.cluster.starting.add("gw-2")
    arguments = ["gw-3" if word == "gw-1" else word for word in command]
    if "drain" in arguments:
        stack.cluster.starting.clear()
    assert run(*arguments) == 0


def test_a_move_asks_the_owner_and_waits_for_the_new_one(
    run: Run, stack: FakeGateways, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("shard", "move", "2", "gw-1") == 0
    assert capfd.readouterr().out == "shard 2: gw-1 owns it, epoch 2\n"
    asked = [(name, path) for name, method, path, _ in stack.cluster.asked if method == "POST"]
    assert asked == [("gw-3", "/admin/shards/2/move")]
    assert run("shard", "move", "2", "gw-1") == 0, "it is there already"


def test_a_shard_that_does_not_move_in_time_is_an_error(
    run: Run, stack: FakeGateways, capfd: pytest.CaptureFixture[str]
) -> None:
    stack.cluster.moves = False
    assert run("shard", "move", "2", "gw-1", "--timeout", "0") == 1
    assert "shard 2 has not moved to gw-1 within 0 s, and gw-3 owns it" in capfd.readouterr().err


def test_a_drain_ends_when_no_shard_is_left(run: Run, stack: FakeGateways, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("gateway", "drain", "gw-1") == 0
    assert capfd.readouterr().out == "gw-1: no shards left\n"
    assert "gw-1" not in stack.cluster.owners


def test_a_drain_goes_on_while_nobody_has_claimed_what_the_gateway_has_released(
    run: Run, stack: FakeGateways, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its successor may be lost: then the shard comes back."""
    stack.cluster.owners[0], stack.cluster.released_by[0] = None, "gw-1"
    assert run("gateway", "drain", "gw-1", "--timeout", "0") == 1
    assert capfd.readouterr().out == "gw-1: 1 shard left\n"


def test_a_drain_that_takes_too_long_goes_on_and_says_how_far_it_is(
    run: Run, stack: FakeGateways, capfd: pytest.CaptureFixture[str]
) -> None:
    stack.cluster.moves = False
    assert run("gateway", "drain", "gw-1", "--timeout", "0") == 1
    shown = capfd.readouterr()
    assert shown.out == "gw-1: 2 shards left\n"
    assert "gw-1 still owns 2 shards after 0 s: it goes on moving them" in shown.err


class Restarts(threading.Thread):
    """The `up` of a stack, as far as a replacement needs one: answers requests, `error` if that is given."""

    def __init__(self, data: Path, cluster: FakeCluster, error: str | None) -> None:
        super().__init__(daemon=True)
        self._data, self._cluster, self._error = data, cluster, error
        self._stopping = threading.Event()
        self.parts: list[str] = []

    def run(self) -> None:
        names = {"gateway": "gw-1", "gateway-2": "gw-2", "gateway-3": "gw-3"}
        while not self._stopping.wait(0.01):
            if request := requests.next(self._data):
                if request.part == "dispatcher":
                    self.parts.append(request.part)
                    requests.answer(self._data, Answer(id=request.id, lines=["done"], over=True, error=self._error))
                    continue
                assert names[request.part] not in self._cluster.owners, "it was drained first"
                self.parts.append(request.part)
                if self._error is None:
                    self._cluster.restart(names[request.part])
                requests.answer(self._data, Answer(id=request.id, lines=["done"], over=True, error=self._error))

    def stop(self) -> None:
        self._stopping.set()
        self.join()


@pytest.fixture
def make_up(tmp_path: Path, stack: FakeGateways, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Restarts]]:
    made: list[Restarts] = []

    def one(error: str | None = None) -> Restarts:
        made.append(Restarts(tmp_path, stack.cluster, error))
        made[-1].start()
        return made[-1]

    monkeypatch.setattr(gateway, "POLL_S", 0.01)
    yield one
    for up in made:
        up.stop()


def test_one_gateway_is_drained_restarted_and_waited_for(
    run: Run, stack: FakeGateways, make_up: Callable[..., Restarts], capfd: pytest.CaptureFixture[str]
) -> None:
    """R5: it is up as another process, and owns shards again."""
    up = make_up()
    assert run("gateway", "replace", "gw-2") == 0
    assert up.parts == ["gateway-2"]
    assert capfd.readouterr().out.splitlines() == [
        "gw-2: no shards left",
        "done",
        "gw-2: replaced; it is up and owns 1 shard",
    ]


def test_without_a_name_all_are_replaced_one_after_the_other(
    run: Run, stack: FakeGateways, make_up: Callable[..., Restarts]
) -> None:
    up = make_up()
    assert run("gateway", "replace") == 0
    assert up.parts == ["gateway", "gateway-2", "gateway-3"]
    assert set(stack.cluster.boots.values()) == {2}
    assert set(stack.cluster.states.values()) == {"up"}


def test_the_dispatcher_is_replaced_last_or_alone(
    run: Run,
    stack: FakeGateways,
    tmp_path: Path,
    make_up: Callable[..., Restarts],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """R1, R5: alone it needs no gateway to answer. A stack without one has none to replace."""
    assert run("gateway", "replace", "dispatcher") == 1
    assert "this stack has no gateway dispatcher: it has gw-1, gw-2, gw-3" in capfd.readouterr().err
    stack.has_dispatcher = True
    stack.run_as_stack(tmp_path)
    up = make_up()
    assert run("gateway", "replace", "dispatcher") == 0
    assert capfd.readouterr().out.splitlines() == ["done", "dispatcher: replaced"]
    assert run("gateway", "replace") == 0
    assert up.parts == ["dispatcher", "gateway", "gateway-2", "gateway-3", "dispatcher"]
    assert run("gateway", "replace", "gw-9") == 1
    assert "it has gw-1, gw-2, gw-3, dispatcher" in capfd.readouterr().err


def test_a_replacement_that_fails_ends_the_command_and_the_others_stay(
    run: Run, make_up: Callable[..., Restarts], capfd: pytest.CaptureFixture[str]
) -> None:
    up = make_up("gateway was not replaced, and its earlier version runs again: the new process ended with status 1")
    assert run("gateway", "replace") == 1
    assert "gateway was not replaced" in capfd.readouterr().err
    assert up.parts == ["gateway"]


def test_what_the_gateway_refuses_is_the_error_and_nothing_is_restarted(
    run: Run, stack: FakeGateways, make_up: Callable[..., Restarts], capfd: pytest.CaptureFixture[str]
) -> None:
    up = make_up()
    stack.cluster.refusal = "no other gateway is up that could take the shards"
    for command in COMMANDS[2:]:
        assert run(*command) == 1
        assert "refused the request: no other gateway is up that could take the shards" in capfd.readouterr().err
    assert up.parts == []


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_gateway_that_is_in_no_cluster_is_the_cause(
    run: Run, stack: FakeGateways, capfd: pytest.CaptureFixture[str], command: list[str]
) -> None:
    stack.cluster.is_cluster = False
    assert run(*command) == 1
    assert "this gateway is not in a cluster: gateway.cluster.enabled is false" in capfd.readouterr().err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_without_a_stack_the_command_says_where_it_looked(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert run(*command) == 1
    assert f"no stack is running in {tmp_path}: start one" in capfd.readouterr().err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_if_no_gateway_answers_one_is_named(
    run: Run, stack: FakeGateways, capfd: pytest.CaptureFixture[str], command: list[str]
) -> None:
    for name in NAMES:
        stack.lose(name)
    assert run(*command) == 1
    err = capfd.readouterr().err
    assert "does not answer: [Errno 111] Connection refused" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["shard", "move", "9", "gw-1"], "there is no shard 9: they are 0 to 3"),
        (["shard", "move", "0", "gw-9"], "there is no gateway gw-9: there are gw-1, gw-2, gw-3"),
        (["gateway", "drain", "gw-9"], "there is no gateway gw-9: there are gw-1, gw-2, gw-3"),
        (["gateway", "replace", "gw-9"], "this stack has no gateway gw-9: it has gw-1, gw-2, gw-3"),
    ],
    ids=str,
)
def test_a_name_that_is_none_is_shown_with_those_there_are(
    run: Run, stack: FakeGateways, capfd: pytest.CaptureFixture[str], command: list[str], sentence: str
) -> None:
    assert run(*command) == 1
    assert sentence in capfd.readouterr().err


def test_a_shard_that_nobody_owns_is_not_moved(
    run: Run, stack: FakeGateways, capfd: pytest.CaptureFixture[str]
) -> None:
    stack.cluster.owners[0] = None
    assert run("shard", "move", "0", "gw-2") == 1
    assert "nobody owns shard 0 at this moment: try again" in capfd.readouterr().err


def test_elsewhere_gateways_are_named_by_their_addresses(
    run: Run, fakes: FakeGateways, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without a stack. A command for one gateway needs that one among them, which is found by its answer."""
    token = tmp_path / "token"
    token.write_text("the-token\n")
    first, second = (("--gateway", fakes.urls[name]) for name in ("gw-1", "gw-2"))
    assert run("gateways", *second, "--token-file", str(token)) == 0
    assert run("shard", "move", "0", "gw-3", *second, *first) == 0
    assert run("gateway", "drain", "gw-1", *second) == 1
    assert "gw-1 itself must be asked, and its address is not known" in capfd.readouterr().err
    assert run("gateway", "drain", "gw-1", *second, *first) == 0
    assert fakes.cluster.asked[0] == ("gw-2", "GET", "/admin/gateways", "Bearer the-token")


def test_parts_that_are_still_starting_are_not_replaced(
    run: Run, fakes: FakeGateways, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fakes.run_as_stack(tmp_path, is_ready=False)
    assert run("gateway", "replace") == 1
    assert "some parts of the stack are still starting" in capfd.readouterr().err


def test_sessions_are_looked_for_at_all_gateways_and_one_that_is_away_is_named(
    run: Run, stack: FakeGateways, capfd: pytest.CaptureFixture[str]
) -> None:
    """A client's session is at one of them: nobody knows beforehand at which."""
    stack.cluster.sessions = {"alice": "gw-2", "bob": "gw-3", "carol": "gw-1"}
    assert run("sessions", "--json", "--limit", "2") == 0
    listed = json.loads(capfd.readouterr().out)
    assert [one["client"] for one in listed["sessions"]] == ["alice", "bob"]
    assert listed["total"] == 3
    stack.lose("gw-1")
    assert run("kick", "alice") == 0
    shown = capfd.readouterr()
    assert shown.out == "alice disconnected\n"
    assert run("kick", "carol") == 1
    assert f"the gateway at {stack.urls['gw-1']} does not answer" in capfd.readouterr().err
