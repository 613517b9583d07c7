"""Makes a deliverer of the settings: the only place that knows both."""

import ssl
import time
from collections.abc import Callable

from edge.client.access_point import AccessPoint
from edge.uplink import settings as uplink_settings
from edge.uplink.batch_limit import BatchLimit
from edge.uplink.bearer_link import BearerLink
from edge.uplink.bearers import Bearer
from edge.uplink.carry_holder import CarryHolder
from edge.uplink.carry_lane import CarryLane
from edge.uplink.deliverer import Deliverer
from edge.uplink.gateway_api import GatewayApi, credentials
from edge.uplink.holder import Holder
from edge.uplink.http_transport import HttpTransport, Source, Traffic
from edge.uplink.settings import UplinkSettings


def deliverer(
    holder: Holder,
    settings: UplinkSettings,
    *,
    tls: ssl.SSLContext | None,
    secret: str | None,
    carrier: CarryHolder | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Deliverer:
    """`tls`: the context for https; None: the system's authorities. `secret`: the password, or a token if there is no
    user name. `carrier`: what takes along messages for devices that are away, and knows receipts; None: nothing does.
    `clock`: the holder's, in seconds. Raises ValueError for a URL that is none."""
    return Deliverer(
        holder,
        [_link(holder.name, bearer, settings, tls, secret, clock) for bearer in uplink_settings.bearers(settings)],
        uplink_settings.plan_limits(settings),
        is_urgent=uplink_settings.urgency(settings),
        mesh_s=settings.mesh_s,
        carrying=None if carrier is None else CarryLane(carrier, uplink_settings.fetch_limits(settings), clock),
        clock=clock,
    )


def _link(
    name: str,
    bearer: Bearer,
    settings: UplinkSettings,
    tls: ssl.SSLContext | None,
    secret: str | None,
    clock: Callable[[], float],
) -> BearerLink:
    traffic, source = Traffic(), Source(bearer.source_address, bearer.interface)
    limits, server_name = uplink_settings.request_limits(settings), settings.server_name or None

    def open_gateway(base: AccessPoint) -> GatewayApi:
        transport = HttpTransport(base, tls=tls, server_hostname=server_name, source=source, traffic=traffic)
        return GatewayApi(transport, credentials(base, client_name(name), settings.username, secret), limits)

    return BearerLink(
        bearer,
        name,
        open_gateway,
        BatchLimit(uplink_settings.batch_bytes(settings)),
        uplink_settings.reachability_limits(settings, bearer),
        traffic=traffic,
        clock=clock,
    )


def client_name(name: str) -> str:
    """The agent's name as `X-Client-Id`; "" if it does not fit there, and credentials must say who it is."""
    fits = 1 <= len(name) <= 128 and all(c.isascii() and (c.isalnum() or c in "._~-") for c in name)
    return name if fits else ""
