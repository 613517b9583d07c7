"""The agent's metrics as text, in the format that Prometheus reads (version 0.0.4): pure.

They come from what `waystation agent status` shows and from the logs of messages' ways, so there is one account of what
the agent does. Counters count from the agent's start.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PREFIX: Final = "waystation_agent_"

Steps = Mapping[tuple[str, str], int]
"""How often each step of a message's way was taken: by the part of the agent, and the event."""


class _Metric(NamedTuple):
    """`path`: where its value is in the status; `*` matches each name, which becomes the label `label`. The other
    labels are fixed."""

    name: str
    kind: str
    help: str
    path: tuple[str, ...]
    labels: Mapping[str, str] = {}
    label: str = ""


def _gauge(name: str, text: str, *path: str, **labels: str) -> _Metric:
    return _Metric(name, "gauge", text, path, labels)


def _counter(name: str, text: str, *path: str, **labels: str) -> _Metric:
    return _Metric(name, "counter", text, path, labels)


def _mesh(name: str, text: str, kind: str = "gauge") -> _Metric:
    return _Metric(f"mesh_{name}", kind, text, ("mesh", name.removesuffix("_total")))


def _bearer(name: str, text: str, key: str, kind: str = "gauge", **labels: str) -> _Metric:
    return _Metric(f"bearer_{name}", kind, text, ("bearers", "*", key), labels, "bearer")


_WAITING: Final = "Messages that wait, by the way that they take."
_BYTES: Final = "Size of the messages that wait, in bytes, by the way that they take."
_CLAIMS: Final = "Answers to claims for deliveries: granted to this agent, or refused because another agent delivers."
_TRAFFIC: Final = "Bytes of HTTP over a bearer, without TLS and TCP."

METRICS: Final = (
    _gauge("waiting_messages", _WAITING, "outbox", "messages", way="platform"),
    _gauge("waiting_messages", _WAITING, "mesh", "bundles", way="mesh"),
    _gauge("waiting_messages", _WAITING, "relay", "messages", way="relay"),
    _gauge("waiting_messages", _WAITING, "broker", "messages", way="broker"),
    _gauge("store_bytes", _BYTES, "outbox", "bytes", way="platform"),
    _gauge("store_bytes", _BYTES, "mesh", "bundle_bytes", way="mesh"),
    _gauge("store_bytes", _BYTES, "relay", "bytes", way="relay"),
    _gauge("store_bytes", _BYTES, "broker", "bytes", way="broker"),
    _gauge("platform_connected", "Whether the agent is connected to the platform, 1 or 0.", "connected"),
    _mesh("links", "Links to other agents that are open."),
    _mesh("links_refused_total", "Connections of others that were closed, as there were too many.", "counter"),
    _mesh("peers", "Agents with which there is a contact."),
    _mesh("peers_unreachable", "Agents with which there is a contact, but whose answers take too long."),
    _mesh("waiting_for_keys", "Messages that wait for the certificate of their recipient."),
    _mesh("inbox_messages", "Messages that have come over the mesh and wait for the application."),
    _mesh("unreadable_total", "Messages to this agent that could not be opened.", "counter"),
    _mesh("receipts", "Receipts of delivered messages that are remembered."),
    _mesh("reports", "Events that wait to be published to message presence."),
    _gauge("uplink_up", "Whether a gateway is in reach of the mesh's uplink, 1 or 0.", "uplink", "is_up"),
    _gauge("uplink_presence_in_reach", "Whether message presence is in reach, 1 or 0.", "uplink", "presence_in_reach"),
    _gauge("uplink_held", "Messages that wait for delivery by the uplink.", "uplink", "held"),
    _gauge("uplink_refused", "Messages held here that the platform will never take.", "uplink", "refused"),
    _counter("uplink_claims_total", _CLAIMS, "uplink", "claims_granted", answer="granted"),
    _counter("uplink_claims_total", _CLAIMS, "uplink", "claims_refused", answer="refused"),
    _bearer("up", "Whether a gateway is in reach over the bearer, 1 or 0.", "is_up"),
    _bearer("round_trip_ms", "Smoothed time that a small request takes, in milliseconds.", "round_trip_ms"),
    _bearer("loss", "Part of the requests without a good answer, smoothed, 0 to 1.", "loss"),
    _bearer("last_answer_seconds", "Time since a gateway has last answered, in seconds.", "last_answer_s"),
    _bearer("delivered_total", "Messages that were delivered over the bearer.", "delivered", "counter"),
    _bearer("bytes_total", _TRAFFIC, "bytes_sent", "counter", direction="sent"),
    _bearer("bytes_total", _TRAFFIC, "bytes_received", "counter", direction="received"),
    _gauge("submission_connections", "Connections of programs that submit mail.", "submission", "connections"),
    _gauge("mqtt_connections", "Connections of MQTT clients to the agent.", "mqtt", "connections"),
)
_STEPS: Final = f"{PREFIX}steps_total"
_STEPS_HELP: Final = (
    "Steps of messages' ways, as `waystation agent log` shows them: by the part of the agent and what happened, such "
    "as accepted, acknowledged, delivered, expired or refused."
)


def exposition(status: Mapping[str, Any], steps: Steps) -> bytes:
    """All metrics that there is something to say about. `status`: the answer to `waystation agent status`."""
    lines: list[str] = []
    known = ""
    for metric in METRICS:
        name = PREFIX + metric.name
        for labels, value in _values(status, metric.path, metric):
            if name != known:
                known = name
                lines += _head(name, metric.kind, metric.help)
            lines.append(f"{name}{_labels({**labels, **metric.labels})} {value:.17g}")
    lines += _head(_STEPS, "counter", _STEPS_HELP)
    for (part, event), count in sorted(steps.items()):
        lines.append(f"{_STEPS}{_labels({'part': part, 'event': event})} {count}")
    return ("\n".join(lines) + "\n").encode()


def _values(found: Any, path: tuple[str, ...], metric: _Metric) -> Iterator[tuple[Mapping[str, str], float]]:
    if not path:
        if isinstance(found, bool | int | float):
            yield {}, float(found)
    elif isinstance(found, Mapping) and path[0] == "*":
        for name, value in found.items():
            for labels, one in _values(value, path[1:], metric):
                yield {metric.label: str(name), **labels}, one
    elif isinstance(found, Mapping) and path[0] in found:
        yield from _values(found[path[0]], path[1:], metric)


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
