"""The stamps of a feed's message as MQTT 5 user properties, for its subscribers (S3). Pure.

| user property   | value                                                                                     |
|-----------------|-------------------------------------------------------------------------------------------|
| `feed-sequence` | the number of the message in its source stream                                            |
| `feed-part`     | 0; k for the k-th administrative message that follows it                                  |
| `feed-read-us`  | when the adapter read it, µs since the epoch                                              |
| `feed-adapter`  | the adapter whose copy this is                                                            |
| `feed-late`     | `1` if its number was reported lost, or what follows it was delivered before; else absent |
"""

from feeds.message import FeedMessage
from mqtt.codes import PacketType
from mqtt.properties import encode_properties


def stamps_section(stamps: FeedMessage, *, is_late: bool) -> bytes:
    """The property section of the PUBLISH; adapters write no other properties."""
    pairs = [
        ("feed-sequence", str(stamps.sequence)),
        ("feed-part", str(stamps.part)),
        ("feed-read-us", str(stamps.read_us)),
        ("feed-adapter", stamps.adapter),
    ]
    if is_late:
        pairs.append(("feed-late", "1"))
    return encode_properties({"user_property": pairs}, PacketType.PUBLISH)
