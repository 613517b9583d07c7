"""`waystation up` without its console: stops what a killed `up` left behind, then runs the parts until asked to
stop."""

import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from edge.durable import NO_SPACE
from jobs.errors import StackError
from jobs.stack import generations, jars
from jobs.stack.broker import prepare
from jobs.stack.gateways import (
    DISPATCHER,
    LocalGateway,
    all_of_them,
    has_been_cluster,
    local_gateways,
    remember_cluster,
)
from jobs.stack.java import find_java
from jobs.stack.log_rotation import Limits as LogLimits
from jobs.stack.part import Part
from jobs.stack.parts import (
    Addresses,
    broker_spec,
    choose_addresses,
    configured,
    dispatcher_part,
    environment,
    gateway_part,
    local_parts,
    router_part,
    routers,
)
from jobs.stack.process import Identity, wait_until
from jobs.stack.replacing import Replacing, Request, RouterPart
from jobs.stack.requests import UpRequest, forget
from jobs.stack.restarting import GatewayRequest, Restarting
from jobs.stack.state import StackState, hold, read_state, stop_leftovers
from jobs.stack.supervisor import Event, Limits, Supervisor
from schemas.settings import Settings

TICK_S = 0.1
DETACHED_MARGIN_S = 30.0


class Plan(NamedTuple):
    """The arguments of `up`. `configuration`: the files, in order; `data`: absolute; `only`: the parts to start, by
    name, with those that they need; empty: all. `gateways`: how many."""

    settings: Settings
    configuration: list[Path]
    data: Path
    free_ports: bool
    only: frozenset[str] = frozenset()
    gateways: int = 1


class Console(NamedTuple):
    """The output of `up`: plain lines, events of parts, and a message once everything is ready, with the seconds it
    took."""

    say: Callable[[str], None]
    event: Callable[[Event], None]
    ready: Callable[[StackState, float], None]


def run(
    data: Path,
    stop_timeout_s: float,
    make_supervisor: Callable[[], Supervisor],
    stopping: threading.Event,
    console: Console,
) -> None:
    """Run a stack in `data` until `stopping` is set; whatever happens, none of it is left running.

    The supervisor is created once the directory is locked and the remains of a killed `up` are stopped, so that its
    ports are free. Raises StackError if another `up` holds the directory, a part cannot start, or the disk has no space
    for its first start, and what `make_supervisor` raises.
    """
    began = time.monotonic()
    with hold(data):
        for name in stop_leftovers(data, stop_timeout_s):
            console.say(f"stopped {name}, which was still running after its `up` was killed")
        forget(data)
        with _on_a_disk_with_space(data):
            supervisor = make_supervisor()
        announced = False
        try:
            while not stopping.is_set():
                with _on_a_disk_with_space(data):  # the first start of a part; a later one is tried again
                    supervisor.tick()
                if supervisor.ready and not announced:
                    announced = True
                    console.ready(supervisor.state(), time.monotonic() - began)
                    supervisor.announce()
                stopping.wait(TICK_S)
        finally:
            supervisor.stop()


@contextmanager
def _on_a_disk_with_space(data: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        what = error.filename or "what the stack needs"
        raise StackError(
            f"cannot write {what}: {error.strerror}; free some space, or choose a data directory on another disk than "
            f"{data} with --data"
        ) from error


def stop(data: Path, stop_timeout_s: float) -> bool:
    """Stop the stack of a directory and wait for it; False if there was none. Raises StackError if it does not stop."""
    state = read_state(data)
    if state is None:
        return False
    if not state.supervisor.alive():
        with hold(data):
            return bool(stop_leftovers(data, stop_timeout_s))
    supervisor = state.supervisor
    supervisor.ask_to_stop()
    levels = 1 + max((process.level for process in state.processes), default=0)
    if not wait_until(lambda: not supervisor.alive(), stop_timeout_s * levels + DETACHED_MARGIN_S):
        raise StackError(f"the stack in {data} (pid {supervisor.pid}) does not stop: read the logs in {data / 'logs'}")
    return True


def selected(parts: Sequence[Part], only: Collection[str]) -> list[Part]:
    """Those of the parts that are in `only`, and those that they start after; all if it is empty. Raises StackError for
    an unknown name."""
    by_name = {part.name: part for part in parts}
    unknown = sorted(set(only) - by_name.keys())
    if unknown:
        raise StackError(f"there is no part {', '.join(unknown)}: the parts are {', '.join(by_name)}")
    wanted, open_ends = set(), list(only or by_name)
    while open_ends:
        name = open_ends.pop()
        if name not in wanted:
            wanted.add(name)
            open_ends += by_name[name].after
    return [part for part in parts if part.name in wanted]


def local_supervisor(plan: Plan, environ: Mapping[str, str], console: Console, me: Identity) -> Supervisor:
    """The supervisor of the local stack. Raises JavaError, JarsError, PortTaken, StackError."""
    settings, data = plan.settings, plan.data
    java = find_java(environ)
    console.say(f"Java {java}" + (f"; {java.warning}" if java.warning else ""))
    jars.resolve_for(settings.storage.kind, environ, console.say)
    gateways, addresses = _gateways(plan, console)
    only = all_of_them(plan.only, gateways)
    spec = broker_spec(settings, data, addresses)
    broker_argv = prepare(spec, java.command, jars.kafka_classpath(environ))
    env = environment(plan.configuration, data, addresses, java)

    def anew(request: UpRequest) -> dict[str, str]:
        return {**env, **configured([Path(file) for file in request.configuration])}

    def make(name: str, roles: list[str], request: Request, generation: int) -> Part:
        return router_part(settings, data, request.interpreter, anew(request), name, roles, generation)

    def make_gateway(gateway: LocalGateway, request: GatewayRequest) -> Part:
        return gateway_part(data, request.interpreter, anew(request), gateway)

    def make_dispatcher(request: GatewayRequest) -> Part:
        return dispatcher_part(settings.gateway, data, request.interpreter, anew(request), addresses)

    for roles in routers(settings).values():
        generations.record(data, roles, generations.generation_of(data, roles))
        generations.prune(data, roles)
    # The backup first: if the new version fails, it fails where it matters least.
    replaceable = [
        RouterPart(name, roles, partial(make, name, roles))
        for name, roles in routers(settings).items()
        if not only or name in only
    ]
    replacing = Replacing(data, replaceable[::-1])
    running = [gateway for gateway in gateways if not only or gateway.part in only]
    restartable: dict[str, Callable[[GatewayRequest], Part]] = {
        gateway.part: partial(make_gateway, gateway) for gateway in running
    }
    has_dispatcher = any(gateway.is_behind_dispatcher for gateway in gateways)
    if has_dispatcher and (not only or DISPATCHER in only):
        restartable[DISPATCHER] = make_dispatcher
    restarting = Restarting(data, restartable)

    def attend(supervisor: Supervisor) -> None:
        replacing(supervisor)
        restarting(supervisor)

    return Supervisor(
        data,
        selected(local_parts(settings, data, spec, broker_argv, [sys.executable], env, gateways, addresses), only),
        Limits(
            settings.stack.start_timeout_s,
            settings.stack.stop_timeout_s,
            settings.stack.restart_backoff_s,
            settings.stack.router_settle_s,
            LogLimits(settings.stack.log_bytes, settings.stack.log_files),
        ),
        environ,
        console.event,
        me,
        bootstrap=addresses.bootstrap,
        configuration=[str(path) for path in plan.configuration],
        attend=attend,
        gateways={gateway.part: gateway.name for gateway in running},
    )


def _gateways(plan: Plan, console: Console) -> tuple[list[LocalGateway], Addresses]:
    """The gateways to start, and the addresses of the stack. Raises PortTaken."""
    gateway, was_cluster = plan.settings.gateway, has_been_cluster(plan.data)
    is_cluster = plan.gateways > 1 or was_cluster or gateway.cluster.enabled
    addresses = choose_addresses(plan.settings, plan.data, plan.free_ports, plan.gateways, is_cluster)
    if plan.gateways > 1:
        remember_cluster(plan.data)
    elif was_cluster and not gateway.cluster.enabled:
        console.say("several gateways have run in this directory, so gateway.cluster.enabled = true")
    sockets = gateway.cluster.sockets
    return local_gateways(gateway.name, addresses.gateways, is_cluster, plan.data, sockets), addresses
