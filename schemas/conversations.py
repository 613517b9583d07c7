"""Conversations in share groups as MQTT 5 user properties (R6).

| user property            | in                    | value                                                             |
|--------------------------|-----------------------|-------------------------------------------------------------------|
| `conversation`           | a message to a group  | the id, at most `gateway.shares.conversation_id_bytes` bytes      |
| `conversation-restarted` | the same, to a member | `true` if another member had the conversation before; else absent |
| `conversation-receiver`  | a message to a sender | `gone`: the receiver of `conversation`, which this message names  |
"""

from typing import Final

CONVERSATION: Final = "conversation"
RESTARTED: Final = "conversation-restarted"
RECEIVER: Final = "conversation-receiver"
GONE: Final = "gone"
