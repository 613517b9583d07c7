"""The counters of home and hosts (`counts`) as Prometheus counters: only this file gives metric names and labels.

A counter without a metric here appears as `waystation_other_events_total{event="<word>"}`.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily

from gateway.host.close_reasons import CLOSE_REASONS
from gateway.http.problems import STATUSES


class _Plain(NamedTuple):
    """A counter without labels."""

    metric: str
    meaning: str


class _Labelled(NamedTuple):
    """A counter whose label is the part of the word after `prefix`. `known` labels exist from the start, at 0, so that
    their first increase is seen."""

    prefix: str
    metric: str
    meaning: str
    label: str
    known: tuple[str, ...] = ()


_PLAIN = {
    "published": _Plain("waystation_publishes_stored", "PUBLISH packets stored in Kafka and acknowledged (QoS 1, 2)"),
    "receipts_asked": _Plain("waystation_receipts_asked", "PUBLISH packets that ask for a receipt"),
    "repeated_requests": _Plain(
        "waystation_requests_repeated", "Requests over HTTP that were sent again because no reply had come in time"
    ),
    "messages_read": _Plain("waystation_messages_read", "PUBLISH packets that say that a message is read"),
    "connections_opened": _Plain("waystation_connections_opened", "Connections accepted"),
    "not_admitted": _Plain(
        "waystation_clients_not_admitted", "CONNECT packets and HTTP requests refused by authentication"
    ),
    "will_left_out": _Plain(
        "waystation_bridge_wills_left_out", "Bridges accepted without their will, which is for $SYS"
    ),
    "spools_set_aside": _Plain(
        "waystation_spools_set_aside", "Damaged files of spools that were set aside and made again from Kafka"
    ),
    "websocket_refused": _Plain(
        "waystation_websocket_handshakes_refused", "WebSocket handshakes answered with an error status"
    ),
    "quic_refused": _Plain(
        "waystation_quic_connections_refused",
        "QUIC connections refused: as many handshakes or connections as are allowed, or the gateway stops",
    ),
    "quic_handshakes_failed": _Plain(
        "waystation_quic_handshakes_failed", "QUIC handshakes that took too long, or ended with an error"
    ),
    "quic_address_changes": _Plain(
        "waystation_quic_address_changes", "How often a client over QUIC has gone on from another address"
    ),
    "quic_failures": _Plain(
        "waystation_quic_failures", "QUIC connections ended by an error in the gateway (log level debug says which)"
    ),
    "connections_refused": _Plain(
        "waystation_http_connections_refused", "HTTP connections beyond limits.connections, closed without an answer"
    ),
    "streams_opened": _Plain("waystation_streams_opened", "Event streams opened"),
    "idempotency_keys_full": _Plain(
        "waystation_idempotency_keys_forgotten", "Idempotency keys forgotten before their time"
    ),
    "publish_not_authorized": _Plain(
        "waystation_publishes_not_authorized", "PUBLISH packets that the access rules do not allow"
    ),
    "subscriptions_ended_by_rule": _Plain(
        "waystation_subscriptions_ended_by_rule",
        "Subscriptions that ended because the access rules no longer allow them",
    ),
    "message_presence_forgotten": _Plain(
        "waystation_message_presence_forgotten", "Messages of the mesh forgotten because of limits.message_presences"
    ),
    "bundles_duplicate": _Plain(
        "waystation_bundle_copies_dropped", "Copies of bundles that a shard had taken before, and dropped"
    ),
    "mesh_reports_refused": _Plain(
        "waystation_mesh_reports_refused", "Reports of taken bundles that Kafka refused; each is made again"
    ),
    "mesh_certificates_refused": _Plain(
        "waystation_mesh_certificates_refused", "Certificates sent with bundles that the authority has not issued"
    ),
    "mesh_certificates_unwritten": _Plain(
        "waystation_mesh_certificates_unwritten", "Learned certificates that Kafka refused; each is written again"
    ),
    "mesh_certificate_records_skipped": _Plain(
        "waystation_mesh_certificate_records_skipped",
        "Records on the topic mesh-certificates that are not valid, and were skipped",
    ),
    "waiting_bundles_given": _Plain(
        "waystation_waiting_bundles_given", "Bundles given to agents that carry them to devices that are away"
    ),
    "feed_copies": _Plain(
        "waystation_feed_copies",
        "Copies of redundant feeds' messages that routers have sent, counted in each shard that gets them",
    ),
    "feed_delivered": _Plain(
        "waystation_feed_delivered", "Messages of redundant feeds that shards have merged and offered to subscribers"
    ),
    "feed_duplicates": _Plain(
        "waystation_feed_duplicates", "Copies of redundant feeds' messages dropped because another copy was first"
    ),
    "feed_gaps": _Plain("waystation_feed_gaps", "Gaps of redundant feeds: ranges missing longer than reorder_ms"),
    "feed_recovered": _Plain(
        "waystation_feed_recovered", "Numbers of redundant feeds that came after they were suspected to be missing"
    ),
    "feed_lost": _Plain("waystation_feed_lost", "Numbers of redundant feeds that were given up"),
    "feed_late": _Plain(
        "waystation_feed_late", "Messages of redundant feeds that came after they were given up, delivered as late"
    ),
    "feed_late_dropped": _Plain(
        "waystation_feed_late_dropped",
        "Messages of redundant feeds that came after they were given up, dropped (gateway.feeds.delivers_late = false)",
    ),
    "feed_expired": _Plain(
        "waystation_feed_expired", "Copies of redundant feeds' messages dropped because nobody remembers their numbers"
    ),
    "feed_refused": _Plain(
        "waystation_feed_refused", "Copies of redundant feeds' messages dropped because of a limit in gateway.feeds"
    ),
    "conversations_restarted": _Plain(
        "waystation_conversations_restarted",
        "How often a conversation in a share group went on with another member, because the one before was gone",
    ),
    "conversations_forgotten": _Plain(
        "waystation_conversations_forgotten", "Conversations forgotten early, because of gateway.shares.conversations"
    ),
    "conversation_notices": _Plain(
        "waystation_conversation_notices", "Messages that told a sender that the receiver of its conversation was gone"
    ),
    "conversation_notices_lost": _Plain(
        "waystation_conversation_notices_lost",
        "Notices to senders that the receiver of a conversation was gone, which Kafka refused",
    ),
    "copies_dropped": _Plain("waystation_instruction_copies_dropped", "Second and further copies of instructions"),
    "fenced": _Plain(
        "waystation_messages_fenced",
        "Messages that were dropped because an earlier owner of their sender's shard had sent them too late",
    ),
    "share_messages_fenced": _Plain(
        "waystation_share_messages_fenced",
        "Messages about share groups that an earlier owner of a shard sent after the next one had begun: dropped",
    ),
    "feed_records_fenced": _Plain(
        "waystation_feed_records_fenced",
        "Records about redundant feeds that an earlier owner of a shard wrote after the next one had begun: dropped",
    ),
    "held_back_full": _Plain(
        "waystation_held_back_full",
        "How often so many direct deliveries waited for routers that the rest was left on Kafka",
    ),
    "parked_full": _Plain(
        "waystation_parked_full",
        "How often so many instructions waited for direct deliveries that the rest was left on Kafka",
    ),
    "unspooled_full": _Plain(
        "waystation_unspooled_full",
        "How often reading from Kafka paused because too many messages waited for a failing spool",
    ),
    "admin_refused": _Plain("waystation_admin_requests_refused", "Unauthorised admin requests"),
    "dispatched": _Plain(
        "waystation_clients_dispatched", "Clients over TCP that the dispatcher of the machine gave to this gateway"
    ),
    "relays_opened": _Plain(
        "waystation_relays_opened", "Clients whose bytes were relayed to their home at another gateway"
    ),
    "relays_failed": _Plain("waystation_relays_failed", "Attempts to relay a client that failed"),
    "relays_refused": _Plain(
        "waystation_homes_not_found", "Clients refused because no gateway had their shard in time, or none answered"
    ),
    "connects_delayed": _Plain(
        "waystation_connects_delayed", "Connections that waited, because a gateway of the site had been lost"
    ),
    "connects_refused_busy": _Plain(
        "waystation_connects_refused_busy", "Connections that were refused, because too many came after such a loss"
    ),
    "home_calls": _Plain(
        "waystation_home_requests",
        "HTTP requests sent to the gateway that has the client's home, repeated ones included",
    ),
    "home_calls_failed": _Plain(
        "waystation_home_requests_failed",
        "HTTP requests to the gateway with the client's home that got no answer; most are sent again",
    ),
    "home_calls_refused": _Plain(
        "waystation_home_requests_unanswered",
        "HTTP requests answered with 503, because no gateway with the client's home answered in time",
    ),
    "redirects": _Plain("waystation_redirects", "Clients that were sent to another gateway by a Server Reference"),
    "heartbeats_refused": _Plain("waystation_heartbeats_refused", "Heartbeats of this gateway that Kafka refused"),
    "member_records_skipped": _Plain(
        "waystation_member_records_skipped", "Records on the topic members that are not valid, and were skipped"
    ),
    "members_forgotten": _Plain(
        "waystation_members_forgotten", "Gateways forgotten because there are more than gateway.cluster.members"
    ),
    "feed_records_skipped": _Plain(
        "waystation_feed_records_skipped", "Records on the topic feeds that are not valid, and were skipped"
    ),
    "feed_records_refused": _Plain("waystation_feed_records_refused", "Records for the topic feeds that Kafka refused"),
    "feed_requests_abandoned": _Plain(
        "waystation_feed_requests_abandoned",
        "Announced administrative messages of feeds given up because no adapter came back (feeds.abandoned_s)",
    ),
    "feed_records_removed": _Plain(
        "waystation_feed_records_removed",
        "Records of lapsed subscribers and old requests that this gateway has removed from the topic feeds",
    ),
    "feed_entries_forgotten": _Plain(
        "waystation_feed_entries_forgotten",
        "Adapters, subscribers and requests of feeds forgotten because there are more than [feeds] allows",
    ),
    "feed_switches": _Plain(
        "waystation_feed_switches", "Switches of the active stream of a feed that count, read by this gateway"
    ),
    "feed_switches_lost": _Plain(
        "waystation_feed_switches_lost",
        "Assignments read by this gateway that do not count: another one was first, or this one was repeated",
    ),
    "feed_assignments_repeated": _Plain(
        "waystation_feed_assignments_repeated",
        "Assignments written again by this gateway, because one that does not count was behind them on the topic",
    ),
    "quarantined": _Plain("waystation_records_quarantined", "Records that the gateway could not read"),
}

_POLICY = (
    "message_bytes",
    "topic_bytes",
    "attachment_bytes",
    "attachment_flagged",
    "blocked_topic",
    "blocked_filter",
    "message_rate",
    "message_rate_paused",
    "connection_rate",
    "client_connection_rate",
)

_OUTCOMES = ("delivered", "sent", "expired", "ended", "dropped")

_LABELLED = (
    _Labelled(
        "closed_",
        "waystation_connections_closed",
        "Connections that have ended, by reason",
        "reason",
        tuple(sorted(CLOSE_REASONS)),
    ),
    _Labelled(
        "not_admitted_",
        "waystation_clients_refused",
        "Refused clients, by cause",
        "reason",
        ("busy", "certificate", "client_id", "jwt", "other_user", "password", "unidentified"),
    ),
    _Labelled(
        "presence_", "waystation_presence_events", "Presence events", "event", ("connected", "disconnected", "lost")
    ),
    _Labelled(
        "refused_",
        "waystation_publishes_refused",
        "PUBLISH packets refused, by reason",
        "reason",
        ("by_kafka", "by_rule", "conversation", "receipt_too_large", "retained_full", "system_topic"),
    ),
    _Labelled(
        "policy_",
        "waystation_policy_findings",
        "Messages and connections that policy refused, flagged or slowed down",
        "finding",
        _POLICY,
    ),
    _Labelled(
        "dropped_",
        "waystation_deliveries_dropped",
        "Deliveries dropped, by reason",
        "reason",
        ("queue_full", "slow_qos0", "too_large_for_client"),
    ),
    _Labelled(
        "spool_failed_",
        "waystation_spool_failures",
        "Failed operations of the spool, each attempt",
        "operation",
        ("read", "write"),
    ),
    _Labelled(
        "subscription_refused_",
        "waystation_subscriptions_refused",
        "Topic filters refused in SUBACK, by reason",
        "reason",
        ("not_authorized", "quota_exceeded", "topic_filter_invalid", "unspecified_error"),
    ),
    _Labelled(
        "bundles_",
        "waystation_bundles",
        "Bundles that agents have brought, by what became of them",
        "outcome",
        ("later", "refused", "taken"),
    ),
    _Labelled(
        "receipts_",
        "waystation_receipts",
        "Recipients' receipts that agents have brought, by what became of them",
        "outcome",
        ("later", "refused", "settled", "unknown"),
    ),
    _Labelled(
        "request_",
        "waystation_requests",
        "Requests over HTTP that this gateway has served, by result",
        "result",
        ("answered", "ended", "left", "no_reply", "not_received", "refused", "reply_too_large"),
    ),
    _Labelled(
        "reply_",
        "waystation_replies",
        "Messages that have come to the inboxes of requests over HTTP, by what became of them",
        "outcome",
        ("dropped", "receipt", "too_large", "written"),
    ),
    _Labelled(
        "http_",
        "waystation_http_responses",
        "Answers to HTTP clients, by status",
        "status",
        tuple(str(status) for status in STATUSES),
    ),
)


def count_families(counts: Mapping[str, int]) -> Iterator[CounterMetricFamily]:
    """All counters. Each family exists from the start."""
    left = dict(counts)
    for word, plain in _PLAIN.items():
        yield CounterMetricFamily(plain.metric, plain.meaning, value=left.pop(word, 0))
    family = CounterMetricFamily(
        "waystation_deliveries", "Outcomes of messages, one count per recipient", labels=["outcome"]
    )
    for outcome in _OUTCOMES:
        family.add_metric([outcome], left.pop(outcome, 0))
    yield family
    for kind in _LABELLED:
        family = CounterMetricFamily(kind.metric, kind.meaning, labels=[kind.label])
        found = {word: left.pop(word) for word in list(left) if word.startswith(kind.prefix)}
        for label in sorted({*kind.known, *(word.removeprefix(kind.prefix) for word in found)}):
            family.add_metric([label], found.get(kind.prefix + label, 0))
        yield family
    family = CounterMetricFamily("waystation_other_events", "Events without a metric of their own", labels=["event"])
    for word, count in sorted(left.items()):
        family.add_metric([word], count)
    yield family
