"""`gateway drain`, `gateway replace`: takes a gateway out of service while the others serve its clients; and replaces
the dispatcher (R1, R5, G14)."""

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from jobs.cli.administration import Gateways, TokenFile, admin_apis
from jobs.cli.cluster import Cluster
from jobs.cli.context import Shared, shared
from jobs.cli.replacement import INTERPRETER, configuration_of, follow, ready_state
from jobs.errors import GatewayApiError, GatewayUnreachable, StackError
from jobs.output import output
from jobs.stack import restarting
from jobs.stack.gateways import DISPATCHER
from jobs.stack.restarting import GatewayRequest
from jobs.stack.state import StackState

POLL_S = 0.2

Timeout = Annotated[
    float, typer.Option(min=0, help="Seconds to wait for the shards of each gateway to move, and to come back.")
]


def register(app: typer.Typer) -> None:
    gateway = typer.Typer(no_args_is_help=True, help="Drain and replace gateways of a cluster.")
    gateway.command()(drain)
    gateway.command()(replace)
    app.add_typer(gateway, name="gateway")

    @gateway.callback()
    def of_gateways() -> None:
        """Drain and replace gateways of a cluster."""


def drain(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="GATEWAY", help="Its name, as `waystation gateways` shows it.")],
    timeout: Timeout = 120.0,
    gateway: Gateways = None,
    token_file: TokenFile = None,
) -> None:
    """Move all shards of a gateway to others, and wait until it has none. It takes none until it is restarted.

    Example: `waystation gateway drain gateway-2`
    """
    _drain(Cluster(admin_apis(shared(context), gateway, token_file)), name, timeout)


def replace(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="GATEWAY", help="Its name, or `dispatcher`. Default: all, one after the other, and the dispatcher."
        ),
    ] = None,
    timeout: Timeout = 120.0,
    token_file: TokenFile = None,
) -> None:
    """Replace gateways of the running stack with the version of this installation. The others serve their clients.

    Each gateway is drained, its process is restarted, and the command waits until it is up and owns shards again. If
    the new version does not start, the earlier one is started again, and the exit status is 1. A gateway stays drained
    if the command is interrupted before the restart: run it again.

    A new dispatcher gets the listening sockets of the running one: clients come all the time, and none is refused.

    Examples:

        waystation gateway replace                    after an update in place
        new/bin/waystation gateway replace            a version installed beside the old one
        waystation gateway replace gateway-2          try the new version with one gateway first
        waystation gateway replace dispatcher         the dispatcher only
    """
    options = shared(context)
    data, state = options.data(), ready_state(options.data())
    parts = {name: part for part, name in state.gateways.items()}
    has_dispatcher = DISPATCHER not in parts and any(process.name == DISPATCHER for process in state.processes)
    if name is not None and name not in parts and not (has_dispatcher and name == DISPATCHER):
        known = [*parts, DISPATCHER] if has_dispatcher else [*parts]
        raise StackError(f"this stack has no gateway {name}: it has {', '.join(known) or 'none'}")
    options.settings()  # report settings that the new version would refuse
    if name != DISPATCHER or not has_dispatcher:
        cluster = Cluster(admin_apis(options, None, token_file))
        for one in parts if name is None else [name]:
            before = cluster.gateway(one)
            _drain(cluster, one, timeout)
            _replace(options, data, state, parts[one], timeout)
            _await_up(cluster, one, before, timeout)
    if has_dispatcher and name in (None, DISPATCHER):
        _replace(options, data, state, DISPATCHER, timeout)
        output().print(f"{DISPATCHER}: replaced", markup=False)


def _replace(options: Shared, data: Path, state: StackState, part: str, timeout_s: float) -> None:
    """Has `up` run another process as the part, and waits for it. Raises StackError."""
    configuration = [str(path) for path in configuration_of(options, state)]
    request = GatewayRequest(
        id=uuid.uuid4().hex, interpreter=INTERPRETER, configuration=configuration, part=part, timeout_s=timeout_s
    )
    restarting.requests.ask(data, request)
    follow(data, lambda: restarting.requests.answer_to(data, request.id))


def _drain(cluster: Cluster, name: str, timeout_s: float) -> None:
    """Raises GatewayApiError if the gateway refuses, or still has shards in the end. One that it has released counts
    until another gateway has claimed it: if none does, it comes back."""
    cluster.gateway(name)
    cluster.api_of(name).drain()
    shown = None

    def is_drained() -> bool:
        nonlocal shown
        left = sum(name in (one["owner"], one["released_by"]) for one in cluster.shards())
        if left != shown:
            output().print(f"{name}: {_shards(left)} left", markup=False)
        shown = left
        return not left

    if not _wait_until(is_drained, timeout_s):
        raise GatewayApiError(
            f"{name} still owns {_shards(shown or 0)} after {timeout_s:g} s: it goes on moving them; check "
            "`waystation shards` and its log"
        )


def _await_up(cluster: Cluster, name: str, before: dict[str, Any], timeout_s: float) -> None:
    """Waits until another process of the gateway is up, and owns shards if the one before did. Raises GatewayApiError
    if it is not up in time."""
    now = before

    def is_up() -> bool:
        nonlocal now
        now = cluster.gateway(name)
        return bool(now["state"] == "up" and now["boot"] != before["boot"])

    if not _wait_until(is_up, timeout_s):
        raise GatewayApiError(f"{name} was restarted, but is not up after {timeout_s:g} s: check its log")
    _wait_until(lambda: is_up() and bool(now["shards"] or not before["shards"]), timeout_s)
    output().print(f"{name}: replaced; it is up and owns {_shards(len(now['shards']))}", markup=False)


def _shards(count: int) -> str:
    return f"{count or 'no'} shard{'' if count == 1 else 's'}"


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether it has come true in time. A moment in which no gateway answers does not end the wait."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if condition():
                return True
        except GatewayUnreachable:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
