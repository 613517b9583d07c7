"""Running totals of MQTT packets and bytes that the connections of a process have received and sent."""


class TrafficCounters:
    """Shared by any number of :class:`mqtt.server_connection.ServerConnection`. `publishes_*` count PUBLISH by QoS;
    byte counts are those of MQTT, without the overhead of WebSocket or TLS."""

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
