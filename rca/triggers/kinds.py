"""Throughput and op interval per op kind on the watched ranks, against what is usual (Mycroft Algorithm 1, second half).

A job that repeats itself is judged by its iterations (pace.py), which hold the same ops each time. One that does not, with
sequences of any length or experts of any load, is judged by each kind of op: a rank's ops of one communicator and
function, small ones apart, counted off in blocks. A block is as many ops as it takes to be steady: then its length is the
op interval and its bytes over the time they took the throughput. One long block is a pause, an evaluation or a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Any, Final

import numpy as np

from ingest.columns import picked, rows_at
from ingest.window import Window
from nccl_instrument.tables import DATA_LOSSES, FUNCS, LOSSES, OP_NO_NETWORK
from rca.keys import Ints, Rows, mix
from rca.settings import SECOND_NS, Settings

KINDS_MAX: Final = 12  # of a job, evenly over the watched ranks
USUAL_KEPT: Final = 32
RECENT_KEPT: Final = 64
BLOCK_NS: Final = SECOND_NS  # a block of fewer ops is made longer
BLOCK_NS_MAX: Final = 60 * SECOND_NS  # of a kind that is not steady in blocks this long nothing is said
STEADY: Final = 1.3  # of blocks, nine in ten are at most this many times as long as the median
NEARLY_ALL: Final = 0.8
SMALL_BYTES: Final = 1 << 16  # ops below carry a few numbers, not tensors: another kind of the same call
FORGOTTEN_NS: Final = 3600 * SECOND_NS  # a kind not seen for so long makes room for others
_HOLES: Final = [LOSSES.index(name) for name in DATA_LOSSES]

Block = tuple[int, int, float]
"""(began_ns, length_ns, ns its ops took per byte; 0 unknown)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of op of one rank. size: ops per block. The block being filled began at began_ns (0: not begun) and holds
    n ops of n_bytes that took busy_ns. seen_ns: ops up to here are counted. skipped: first blocks, left out. usual:
    (length_ns, ns per byte) of normal blocks, recent: newer ones; newest last.
    """

    name: str
    rank: int
    size: int
    n: int = 0
    n_bytes: int = 0
    busy_ns: int = 0
    began_ns: int = 0
    seen_ns: int = 0
    skipped: int = 0
    usual: tuple[tuple[int, float], ...] = ()
    recent: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Halved:
    """A kind whose op interval doubled (seconds per op) or whose throughput halved (seconds per byte)."""

    name: str
    what: str  # "interval" or "throughput"
    since_ns: int
    usual_s: float
    now_s: float
    n_blocks: int

    @property
    def sentence(self) -> str:
        if self.what == "interval":
            return f"{self.name}: {_time(self.now_s)} between two ops instead of {_time(self.usual_s)}."
        return f"{self.name}: {1e-6 / self.now_s:.3g} MB/s while its ops run instead of {1e-6 / self.usual_s:.3g} MB/s."


def learn_kinds(
    kinds: Mapping[str, Kind], window: Window, ranks: Ints, looked_ns: int, settings: Settings
) -> dict[str, Kind]:
    """`kinds` with the ops of `ranks` that are newer than they know. looked_ns: the end of the window learned before.

    Where ops may have been missed, the block being filled is begun anew.
    """
    per_rank = max(1, KINDS_MAX // max(len(ranks), 1))
    whole = set(ranks.tolist()) - _lossy(window) if window.start_ns <= looked_ns else set()
    found = {key: kind if kind.rank in whole else _restarted(kind) for key, kind in kinds.items()}
    seen_ns: dict[int, int] = {}
    for kind in found.values():
        seen_ns[kind.rank] = max(seen_ns.get(kind.rank, 0), kind.seen_ns)
    for key, name, done in _by_kind(window, ranks, seen_ns):
        rank = int(done["rank"][0])
        if key not in found:
            if len(found) >= KINDS_MAX or sum(kind.rank == rank for kind in found.values()) >= per_rank:
                continue
            found[key] = Kind(name, rank, _size(done))
        counted = _counted(found[key], done)
        has_block = counted.began_ns != found[key].began_ns
        found[key] = _settled(counted, settings) if has_block else counted
    newest = max((kind.seen_ns for kind in found.values()), default=0)
    return {key: kind for key, kind in found.items() if kind.seen_ns >= newest - FORGOTTEN_NS}


def halved_kind(kinds: Mapping[str, Kind], settings: Settings) -> Halved | None:
    """The kind that has become slow by the largest factor, if one has."""
    found = [one for kind in kinds.values() if (one := _halved(kind, settings)) is not None]
    return max(found, key=lambda one: one.now_s / one.usual_s, default=None)


def _halved(kind: Kind, settings: Settings) -> Halved | None:
    """The interval first: it is what the job loses; throughput may be lost where nobody waits for it."""
    if len(kind.usual) < _usual_min(settings):
        return None
    for what, at in (("interval", 1), ("throughput", 2)):
        usual = _steady([block[at - 1] for block in kind.usual])
        slow = _newest_slow(kind.recent, at, usual, settings) if usual else []
        if slow:
            per = SECOND_NS * (kind.size if what == "interval" else 1)
            now = median(block[at] for block in slow)
            return Halved(kind.name, what, slow[0][0], usual / per, now / per, len(slow))
    return None


def _newest_slow(recent: tuple[Block, ...], at: int, usual: float, settings: Settings) -> list[Block]:
    """The newest blocks if they are slow: enough of them, for long enough, and nearly all; as pace.py judges iterations."""
    first = max(len(recent) - settings.halved_iterations, 0)
    while first > 0 and sum(block[1] for block in recent[first:]) < settings.delta_min_ns:
        first -= 1
    newest = recent[first:]
    if len(newest) < settings.halved_iterations or sum(block[1] for block in newest) < settings.delta_min_ns:
        return []
    halfway = (1 + settings.slow_factor) / 2 * usual
    n_slow = sum(block[at] >= halfway for block in newest)
    if n_slow < NEARLY_ALL * len(newest) or median(block[at] for block in newest) < settings.slow_factor * usual:
        return []
    while first > 0 and recent[first - 1][at] >= halfway:
        first -= 1
    return [block for block in recent[first:] if block[at] >= halfway]


def _counted(kind: Kind, done: Rows) -> Kind:
    """`kind` with those of `done` (its ops by time) that it has not counted; whole blocks become recent ones."""
    done = done[done["done_ns"] > kind.seen_ns]
    if not len(done):
        return kind
    if not kind.began_ns:
        kind, done = replace(kind, began_ns=int(done["done_ns"][0]), seen_ns=int(done["done_ns"][0])), done[1:]
    recent, skipped = list(kind.recent), kind.skipped
    while kind.n + len(done) >= kind.size:
        taken, done = done[: kind.size - kind.n], done[kind.size - kind.n :]
        n_bytes, busy_ns, end_ns = kind.n_bytes + _bytes(taken), kind.busy_ns + _busy(taken), int(taken["done_ns"][-1])
        recent.append((kind.began_ns, end_ns - kind.began_ns, float(f"{busy_ns / n_bytes:.4g}") if n_bytes else 0.0))
        kind = replace(kind, n=0, n_bytes=0, busy_ns=0, began_ns=end_ns, seen_ns=end_ns)
    if len(done):
        n_bytes, busy_ns = kind.n_bytes + _bytes(done), kind.busy_ns + _busy(done)
        n, seen_ns = kind.n + len(done), int(done["done_ns"][-1])
        kind = replace(kind, n=n, n_bytes=n_bytes, busy_ns=busy_ns, seen_ns=seen_ns)
    return replace(kind, recent=tuple(recent[-RECENT_KEPT:]), skipped=skipped)


def _settled(kind: Kind, settings: Settings) -> Kind:
    """Leaves the warm-up out, lets old blocks become usual unless the kind is slow by then, and widens unsteady blocks."""
    n_skipped = min(max(settings.warm_up_iterations - kind.skipped, 0), len(kind.recent))
    kind = replace(kind, skipped=kind.skipped + n_skipped, recent=kind.recent[n_skipped:])
    if _halved(kind, settings) is None:
        is_known = len(kind.usual) >= _usual_min(settings)
        judged_ns = kind.seen_ns - (settings.judged_ns if is_known else 0)
        n = sum(began + length <= judged_ns for began, length, _ in kind.recent[: -settings.halved_iterations])
        usual = (*kind.usual, *_ordinary(kind, kind.recent[:n], settings))[-USUAL_KEPT:]
        kind = replace(kind, usual=usual, recent=kind.recent[n:])
    lengths = [length for length, _ in kind.usual]
    if len(lengths) < _usual_min(settings) or _steady(lengths) or median(lengths) * 2 > BLOCK_NS_MAX:
        return kind
    return replace(_restarted(kind), size=2 * kind.size, began_ns=kind.seen_ns, usual=(), recent=())


def _ordinary(kind: Kind, blocks: tuple[Block, ...], settings: Settings) -> list[tuple[int, float]]:
    """Those that may become usual: what is half way to slow never does, or the slow would be normal in the end."""
    found = [block[1:] for block in blocks]
    if len(kind.usual) < _usual_min(settings):
        return found
    halfway = (1 + settings.slow_factor) / 2
    length, per_byte = (median(values) for values in zip(*kind.usual, strict=True))
    return [one for one in found if one[0] < halfway * length and one[1] <= halfway * per_byte]


def _steady(values: list[float] | list[int]) -> float:
    """Their median, 0 when they vary too much (or are not known) to be compared with."""
    ordered = sorted(values)
    usual = float(median(ordered))
    return usual if ordered[0] > 0 and ordered[int(0.9 * len(ordered))] <= STEADY * usual else 0.0


_COLUMNS: Final = (
    "rank", "comm_id", "func", "flags", "bytes", "enqueued_ns", "first_ready_ns", "done_ns",
)  # fmt: skip


def _usual_min(settings: Settings) -> int:
    return min(settings.usual_iterations_min, USUAL_KEPT)


def _restarted(kind: Kind) -> Kind:
    """Without the block being filled: ops in it are missing."""
    return replace(kind, n=0, n_bytes=0, busy_ns=0, began_ns=0)


def _by_kind(window: Window, ranks: Ints, seen_ns: Mapping[int, int]) -> Iterator[tuple[str, str, Rows]]:
    """(key, name, ops by time) of every kind of every rank, newer than what was seen of the rank; most bytes first.

    What a node sends is in order, so no op of the rank that was over before is still to come.
    """
    told = window.rows("op")
    done = np.asarray(picked(told, np.flatnonzero(np.isin(told["rank"], ranks)), _COLUMNS))
    names = dict(zip(window.members["comm_id"].tolist(), window.members["name"].tolist(), strict=True))
    for rank in ranks.tolist():
        is_new = (
            (done["rank"] == rank) & (done["done_ns"] > seen_ns.get(rank, 0)) & ((done["flags"] & OP_NO_NETWORK) == 0)
        )
        at = np.flatnonzero(is_new)
        mine = rows_at(done, at[np.argsort(done["done_ns"][at], kind="stable")])
        is_small = mine["bytes"] < SMALL_BYTES
        kinds, first, of_row = np.unique(
            mix(mine["comm_id"], mine["func"], is_small), return_index=True, return_inverse=True
        )
        moved = np.bincount(of_row, mine["bytes"].astype(np.float64), minlength=len(kinds))
        for at in np.argsort(-moved, kind="stable"):
            one = mine[first[at]]
            comm_id, func = int(one["comm_id"]), int(one["func"])
            said = f"{names.get(comm_id) or f'{comm_id:x}'} {FUNCS[min(func, len(FUNCS) - 1)]} on rank {rank}"
            yield f"{rank}:{comm_id:x}:{func}:{int(is_small[first[at]])}", said, rows_at(mine, of_row == at)


def _size(done: Rows) -> int:
    """Ops in a block of some BLOCK_NS."""
    span = int(done["done_ns"][-1] - done["done_ns"][0])
    return max(4, round(BLOCK_NS * (len(done) - 1) / span)) if span > 0 else 4


def _lossy(window: Window) -> set[int]:
    """Ranks of nodes of which data is missing in the window: what is counted there would be too little."""
    losses = window.rows("loss")
    nodes = set(losses["node"][np.isin(losses["kind"], _HOLES) & (losses["count"] > 0)].tolist())
    nodes |= {at for at, name in enumerate(window.nodes["name"].tolist()) if name in window.unreadable}
    return set(window.ranks["rank"][np.isin(window.ranks["node"], sorted(nodes))].tolist())


def _bytes(done: Rows) -> int:
    return int(done["bytes"].sum())


def _busy(done: Rows) -> int:
    """How long these ops took in all, from the first chunk the GPU touched, else from when they were enqueued."""
    began = np.where(done["first_ready_ns"] > 0, done["first_ready_ns"], done["enqueued_ns"])
    return int(np.maximum(done["done_ns"] - began, 0).sum())


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def kinds_to_json(kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """Plain JSON of `kinds`."""
    return {key: [getattr(kind, name) for name in _FIELDS] for key, kind in kinds.items()}


def kinds_from_json(raw: Mapping[str, Any]) -> dict[str, Kind]:
    """What `kinds_to_json` wrote. ValueError on anything else."""
    try:
        return {str(key): _kind(dict(zip(_FIELDS, one, strict=True))) for key, one in raw.items()}
    except (AttributeError, TypeError) as error:
        raise ValueError(f"not kinds of ops: {error}") from error


_FIELDS: Final = tuple(one.name for one in fields(Kind))


def _kind(raw: dict[str, Any]) -> Kind:
    usual = tuple((int(length), float(per_byte)) for length, per_byte in raw.pop("usual"))
    recent = tuple((int(began), int(length), float(per_byte)) for began, length, per_byte in raw.pop("recent"))
    name = str(raw.pop("name"))
    return Kind(name=name, **{field: int(value) for field, value in raw.items()}, usual=usual, recent=recent)
