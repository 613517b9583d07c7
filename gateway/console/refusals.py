"""What this gateway has refused or dropped since its start, by reason, from the same counters as `/metrics`."""

from collections.abc import Mapping

from prometheus_client.core import Metric

from gateway.console.parts import Page, Section, Table, name
from gateway.console.text import number
from gateway.observe.counts import count_families

PATH = "/console/refusals"

FAMILIES = (
    "waystation_clients_refused",
    "waystation_connections_closed",
    "waystation_publishes_refused",
    "waystation_subscriptions_refused",
    "waystation_deliveries_dropped",
    "waystation_policy_findings",
    "waystation_http_responses",
)
"""Counters with a reason as their label, in the order of the page."""

_FINE = ("1", "2", "3")
"""Statuses of HTTP that refuse nothing."""

_WORDS = ("not_admitted", "connections_refused", "websocket_refused", "quic_refused")
_PREFIXES = ("refused_", "subscription_refused_", "dropped_")


def refused(counts: Mapping[str, int]) -> int:
    """How much was refused or dropped in all: connections and clients, messages, subscriptions, deliveries."""
    return sum(count for word, count in counts.items() if word in _WORDS or word.startswith(_PREFIXES))


def page(counts: Mapping[str, int]) -> Page:
    families = {family.name: family for family in count_families(counts)}
    sections = [
        Section(
            "",
            "Counted since this process started. Reasons that have not occurred are left out.",
            tables=[_table(families[found]) for found in FAMILIES],
        )
    ]
    return Page(PATH, "Refusals", sections)


def _table(family: Metric) -> Table:
    found = [(next(iter(sample.labels.values())), sample.value) for sample in family.samples if sample.value]
    found = [(reason, count) for reason, count in found if not reason.startswith(_FINE)]
    rows = [(name(reason), number(count)) for reason, count in sorted(found, key=lambda one: -one[1])]
    return Table(family.documentation, ("reason", "count"), rows, "none")
