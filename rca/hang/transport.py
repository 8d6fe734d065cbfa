"""Which transport a flow uses where nobody said so: NCCL_NET is unset in most deployments, and the row's code is 0 then.

A transport shows in how it treats a receiver that is late: IB refuses the send until credit is there, a socket accepts it.
All members of a communicator use the same network, so what one flow shows holds for all of them, and for the job while
nothing in it contradicts. What nothing shows stays unknown, and only conclusions valid for both are drawn from it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nccl_instrument.tables import IB, SOCKET, TRANSPORTS
from rca.hang.pairs import SEEN, Pairs
from rca.keys import Ints
from rca.settings import Settings

UNKNOWN = TRANSPORTS.index("Unknown")


def with_transport(pairs: Pairs, settings: Settings) -> Pairs:
    """`pairs` with the transport of every flow, inferred where its rows do not say it; 0 where nothing tells."""
    known = np.where(np.isin(pairs.transport, (IB, SOCKET)), pairs.transport, _shown(pairs, settings))
    comms, of_comm = np.unique(pairs.comm, return_inverse=True)
    shows = [np.bincount(of_comm, weights=known == kind, minlength=len(comms)) > 0 for kind in (IB, SOCKET)]
    only = np.select([shows[0] & ~shows[1], shows[1] & ~shows[0]], [IB, SOCKET], _only(known))
    inferred = only[of_comm]
    return replace(pairs, transport=np.where(pairs.transport == UNKNOWN, inferred, pairs.transport))


def _shown(pairs: Pairs, settings: Settings) -> Ints:
    """(P,) what each flow that stands still shows of its transport by itself, 0 for most."""
    _, ready, transmitted, _ = pairs.sent.T
    credit = pairs.taken[:, 0]
    stands = (pairs.sender_end == SEEN) & (pairs.still_ns >= settings.still_ns)
    # Handing over to a socket follows at once on "ready"; what stays refused for long met a network that refuses.
    is_refused = stands & (ready > transmitted)
    is_accepted = stands & (pairs.receiver_end == SEEN) & (transmitted > credit)
    return np.select([is_refused & ~is_accepted, is_accepted & ~is_refused], [IB, SOCKET], UNKNOWN)


def _only(found: Ints) -> int:
    """The one transport among `found`, 0 when there is none or they contradict."""
    kinds = set(found.tolist()) & {IB, SOCKET}
    return kinds.pop() if len(kinds) == 1 else UNKNOWN
