"""A client that has come to the dispatcher, until a gateway has it."""

import socket


class Arrival:
    """`client`: its identifier, None if it is not known. `tried`: the gateways that did not take it."""

    __slots__ = ("client", "connection", "tried")

    def __init__(self, connection: socket.socket, client: str | None) -> None:
        self.connection = connection
        self.client = client
        self.tried: set[str] = set()
