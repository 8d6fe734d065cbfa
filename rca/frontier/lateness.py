"""How late each rank of a window leaves the stage that leads: what a picture of all ranks shows (StageFrontier §3, prefixes).

    prefix of a step = the rank's own stages up to that boundary;   lateness = mean over the steps of (prefix − median rank's)

The rest of a packet keeps the ranks that stand out; this is of all of them, packed: less than two bytes a rank.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rca.frontier.accounting import Seconds, sampled_ranks
from rca.keys import Ints

PART_MS: Final = 0.1
RANKS_MAX: Final = 1_000_000


def lateness_ms(durations: Seconds, boundary: int) -> npt.NDArray[np.float64]:
    """(R,) ms behind the median rank at the end of stage `boundary`; below 0 ahead of it. durations: (T, R, S) seconds."""
    prefix = durations[:, :, : boundary + 1].sum(axis=2)
    drawn = sampled_ranks(prefix.shape[1])
    middle = np.median(prefix if drawn is None else prefix[:, drawn], axis=1)
    found: npt.NDArray[np.float64] = (prefix - middle[:, None]).mean(axis=0) * 1e3
    return found


def pack_lateness(stage: str, ranks: tuple[int, ...], late_ms: npt.NDArray[np.float64]) -> dict[str, Any]:
    """As plain JSON: the stage at whose end they are late, the ranks, and tenths of ms."""
    tenths = np.clip(np.round(late_ms / PART_MS), -(2**31), 2**31 - 1)
    return {"stage": stage, "n": len(ranks), "ranks": _packed(np.diff(ranks, prepend=0)), "tenths": _packed(tenths)}


def unpack_lateness(late: Mapping[str, Any]) -> tuple[str, Ints, npt.NDArray[np.float64]]:
    """Stage, (R,) ranks and (R,) ms, of what `pack_lateness` made. KeyError or ValueError when it is none of ours."""
    n = int(late["n"])
    ranks, tenths = (_unpacked(late[name], n) for name in ("ranks", "tenths"))
    return str(late["stage"]), np.cumsum(ranks), (tenths * PART_MS).astype(np.float64)


def _packed(values: npt.NDArray[Any]) -> str:
    return base64.b64encode(zlib.compress(values.astype("<i4").tobytes())).decode()


def _unpacked(text: str, n: int) -> Ints:
    if not 0 <= n <= RANKS_MAX:
        raise ValueError("not a packed lateness")
    try:
        raw = zlib.decompressobj().decompress(base64.b64decode(text), 4 * n + 1)
    except zlib.error as error:
        raise ValueError("not a packed lateness") from error
    if len(raw) != 4 * n:
        raise ValueError("not a packed lateness")
    return np.frombuffer(raw, "<i4").astype(np.int64)
