"""What the connections of a process have received and sent, as running totals (MQTT packets and their bytes)."""


class Tally:
    """Shared by any number of :class:`mqtt.server_connection.ServerConnection`. `publishes_*` are PUBLISH by QoS;
    bytes are those of MQTT, without what WebSocket or TLS add."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "packets_received",
        "packets_sent",
        "publishes_received",
        "publishes_sent",
    )

    def __init__(self) -> None:
        self.bytes_received = 0
        self.bytes_sent = 0
        self.packets_received = 0
        self.packets_sent = 0
        self.publishes_received = [0, 0, 0]
        self.publishes_sent = [0, 0, 0]
