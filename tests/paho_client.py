"""paho as tests use it: two of its faults would be blamed on the platform."""

from paho.mqtt import client as mqtt
from paho.mqtt.enums import MessageState, MQTTErrorCode

_AFTER_PUBREC = (MessageState.MQTT_MS_WAIT_FOR_PUBCOMP, MessageState.MQTT_MS_RESEND_PUBREL)


class Paho(mqtt.Client):
    """paho 2.1 that forgets neither its own sockets nor a PUBREC.

    * Once its loop has ended, it leaves the pair of sockets by which its threads wake it, a TCP connection with itself,
      to the garbage collector, which warns in the middle of some other test.
    * Its second attempt to connect again forgets which messages have had their PUBREC, if the first one failed: such a
      message is sent as a new PUBLISH (DUP 0), though its PUBREL was sent (MQTT 5.0, 4.3.3: "MUST NOT re-send the
      PUBLISH"); no server can tell it from another message.
    """

    def loop_stop(self) -> MQTTErrorCode:
        stopped = super().loop_stop()
        self._reset_sockets(sockpair_only=True)
        return stopped

    def break_off(self) -> None:
        """The network is gone: no DISCONNECT."""
        self.loop_stop()
        self._sock_close()

    def _messages_reconnect_reset_out(self) -> None:
        with self._out_message_mutex:
            received = [message for message in self._out_messages.values() if message.state in _AFTER_PUBREC]
            super()._messages_reconnect_reset_out()
            for message in received:
                message.state = MessageState.MQTT_MS_RESEND_PUBREL
