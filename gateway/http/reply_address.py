"""Where the replies to an HTTP request go: an inbox and Correlation Data for this request alone (R6).

The inbox is `@http-request/<32 hexadecimal digits>`. So an access rule for `@http-request/#` lets responders answer all
HTTP requests, and reach no client's inbox by that. Only the session with this client id gets what comes to the inbox;
others cannot subscribe to it, and no client may have such a client id: over HTTP no name has a `/`, and at CONNECT it
is refused.

A request without a key gets a random address, in a shard of the gateway that is asked. The address of a request with a
key follows from the client and the key, and lies in the client's shard: a repeated request, which is not sent again,
waits where the replies to the first one go. Then whoever knows the client id and the key can derive the address.
"""

import hashlib
import os
from typing import Final, NamedTuple
from uuid import uuid4

from gateway.shard.arrivals import REPLY_CLIENTS
from gateway.shard.home import Home

_TRIES: Final = 64
_CORRELATION_BYTES: Final = 16


class ReplyAddress(NamedTuple):
    """`client` is the client id of the session that gets the replies."""

    client: str
    correlation: bytes


def new_address(home: Home) -> ReplyAddress | None:
    """A random address in a shard that is here; None if this gateway has hardly a shard."""
    for _ in range(_TRIES):
        client = f"{REPLY_CLIENTS}{uuid4().hex}"
        if home.has_shard_of(client):
            return ReplyAddress(client, os.urandom(_CORRELATION_BYTES))
    return None


def keyed_address(home: Home, client: str, key: str) -> ReplyAddress:
    """The address of the request that `client` makes with `key`. Raises NotAdmitted if the client's home is elsewhere.

    Tries one digest after the other until one lies in the client's shard: as many as there are shards, on average.
    """
    shard, number = home.home_of(client), 0
    while True:
        digest = hashlib.sha256(f"{client}\0{key}\0{number}".encode()).hexdigest()
        found = f"{REPLY_CLIENTS}{digest[:32]}"
        if home.has_shard_of(found) and home.home_of(found) is shard:
            return ReplyAddress(found, bytes.fromhex(digest[32:]))
        number += 1
