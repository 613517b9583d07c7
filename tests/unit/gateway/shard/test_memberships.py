"""What a shard says to share groups of what they have assigned to its sessions (R6, G6, Q7)."""

import pytest

from gateway.shard.hold import Hold
from gateway.shard.memberships import Memberships
from gateway.shard.messages import Assignment, Message
from gateway.shard.ready import ReadySessions
from gateway.shard.session import Session
from gateway.shard.share_messages import Assign, Returned, ToGroup
from mqtt.properties import NO_PROPERTIES

GROUP_SHARD = 1


@pytest.mark.parametrize("qos", [1, 2])
def test_at_qos_2_only_who_has_the_shard_gives_back(qos: int) -> None:
    """A home that has lost its shard, and does not know it yet, may get an assignment that stands in the log for the
    next one too. If it gave that back, another member would get the message as well."""
    at_once: list[ToGroup] = []
    confirmed: list[ToGroup] = []
    session = Session("away", 0, 0, 1, 0)
    members = Memberships(
        0,
        {session.client: session},
        lambda _name: GROUP_SHARD,
        lambda _shard, message: at_once.append(message),
        ReadySessions(Hold()),
        lambda _session: None,
        lambda _shard, message: confirmed.append(message),
    )
    message = Message("id", "source", "a", b"", qos, False, None, NO_PROPERTIES, partition=0, offset=3, appended=0)
    assignment = Assignment("$share/g/a", GROUP_SHARD, 5)
    members.assign(Assign(assignment, session.client, session.incarnation, message, qos, False, (), 0, 0, (1, 1)))
    wanted = Returned([(5, 0)], [(1, 1)])
    assert (at_once, confirmed) == (([wanted], []) if qos == 1 else ([], [wanted]))
