"""What the chunks of every op wait for their GPU to copy them, in ways that nothing else explains (Mycroft §7.1, #3)."""

from __future__ import annotations

import numpy as np

from nccl_instrument.tables import FUNC_RECV, FUNC_SEND
from rca.slow.inside import Wait
from rca.slow.launches import TREE
from rca.slow.slowdown import Slowdown
from rca.slow.streams import Floats


def own_copy_ns(slowdown: Slowdown) -> Floats:
    """(P,) what chunks wait for the GPU, less what the sends of its node are held up: a full way out stops the way in.

    A receive's first chunk may lie while the GPU still computes: of its wait only what makes it last longer counts. So it is
    where the way out is full: then something lies all the time, for longer than the op is. In a tree what one child sent lies
    until the other's has come, so what is awaited there counts against it, too.
    """
    inside = slowdown.inside
    excess = inside.excess
    passes_on = (slowdown.iterations.func != FUNC_SEND) & (slowdown.iterations.func != FUNC_RECV)
    longer = np.maximum(inside.lasted_slow - inside.lasted_usual, 0.0)
    is_known = inside.of_room(np.isfinite(longer).astype(np.float64)) > 0
    copies = excess(Wait.COPY)
    copies = np.where(slowdown.iterations.func == FUNC_RECV, np.minimum(copies, np.nan_to_num(longer)), copies)
    copies = np.where(passes_on & is_known, np.minimum(copies, inside.of_room(longer)), copies)
    is_tree = np.fmax.reduce(slowdown.iterations.column("algo"), axis=1, initial=0.0) == TREE
    held_up = excess(Wait.NETWORK) + excess(Wait.CREDIT) + np.where(is_tree, excess(Wait.DATA), 0.0)
    held_up = np.where(passes_on, inside.of_room(held_up), 0.0)
    return np.maximum(copies - held_up, 0.0)
