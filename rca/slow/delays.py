"""Own delays: how much later a rank began its ops than everything it waited for explains (Mycroft §5.2, late starts).

A rank begins an op late for two reasons. Something before it ended late, then the delay is inherited; or its own work in
between took longer, then the delay is its own. The time from each earlier end to the op's start is compared with what it
was before the slowdown: what is left by the end that explains most is the rank's own. Everything is read from one node's
clock, so no clocks need to agree. Ranks that share a communicator inside their node wait for each other where the network does
not see it: their ends count together, and so does their delay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rca.keys import Ints, Mask
from rca.slow.launches import Launches
from rca.slow.streams import Floats

EXPLAINED_BY_MAX = 16
BEFORE_NS = 200_000.0  # an end this much after the start, usually, still came before it: stamps of two threads
NOISE = 4.0  # times the usual deviation: less than this is not a delay


@dataclass(frozen=True, slots=True)
class Delays:
    """own_ns: (L, I) own delay of each launch, NaN unknown. noise_ns: (L,) what it usually varies by.

    group: (R,) ranks that wait for each other inside a node.
    """

    launches: Launches
    own_ns: Floats
    noise_ns: Floats
    group: Ints

    def per_iteration_ns(self, those: Mask) -> Floats:
        """(R,) how much of an average iteration of `those` (I,) each rank was late of its own, beyond the noise."""
        return self._sum(self._beyond_noise(those))

    def is_constant(self, those: Mask) -> Mask:
        """(R,) who is late in at least half of the iterations of `those` by at least half of the average.

        Of an iteration that is not known nothing is said: lost batches must not make a steady delay look like a single one.
        """
        own = self.own_ns[:, those]
        counted = (self._beyond_noise(those) > 0)[:, None] & np.isfinite(own)
        total, is_known = self._sum(np.where(counted, own, 0.0)), self._sum(counted.astype(np.float64)) > 0
        n_known = np.maximum(is_known.sum(axis=1), 1)
        average = np.where(is_known, total, 0.0).sum(axis=1) / n_known
        is_late = is_known & (total >= 0.5 * average[:, None])
        found: Mask = is_late.sum(axis=1) >= 0.5 * n_known
        return found

    def is_told(self, those: Mask) -> Mask:
        """(R,) of whom it is known whether a launch is late; not where all of them begin with others' data, in trees."""
        is_known = np.isfinite(self.own_ns[:, those]).any(axis=1)
        found: Mask = self._sum(np.where(is_known, 1.0, 0.0)) > 0
        return found

    def shown(self, rank_at: int, those: Mask) -> tuple[int, int]:
        """(launches of the rank that are late of their own, of how many), on average over the iterations of `those`."""
        late = self._beyond_noise(those)[self.launches.places_of(rank_at)] > 0
        return int(late.sum()), len(late)

    def _beyond_noise(self, those: Mask) -> Floats:
        """(L,) mean own delay, 0 where it is no more than a mean of so many iterations varies by."""
        own = self.own_ns[:, those]
        n = np.maximum(np.isfinite(own).sum(axis=1), 1)
        mean = np.where(np.isfinite(own), own, 0.0).sum(axis=1) / n
        return np.where(mean > NOISE * self.noise_ns / np.sqrt(n) + BEFORE_NS, mean, 0.0)

    def _sum(self, of_launch: Floats) -> Floats:
        """(R,) or (R, I) from (L,) or (L, I)."""
        first, end = self.launches.first, np.zeros((1, *of_launch.shape[1:]))
        total = np.add.reduceat(np.concatenate([of_launch, end]), first[:-1], axis=0)
        total[np.diff(first) == 0] = 0.0
        return total


def own_delays(launches: Launches, group: Ints, usual: Mask) -> Delays:
    """Own delays against the iterations in `usual`. group: (R,) see `node_groups`."""
    own = np.full(launches.ready.shape, np.nan)
    mates = _mates(launches, group)
    for places, ends in _programs(launches, group, mates):
        own[places] = _own(launches, ends, places, usual)
    noise = 1.4826 * _median(np.abs(own - _median(own[:, usual])[:, None])[:, usual])
    return Delays(launches, own, noise, group)


def _mates(launches: Launches, group: Ints) -> dict[tuple[int, int], Floats]:
    """(group, program) → (2, K, I) when the first of the group's ranks with that program began each launch, and when the
    last was through with it."""
    programs, found = launches.programs(), {}
    for one in np.unique(group):
        in_group = group == one
        for program in np.unique(programs[in_group]):
            at = np.flatnonzero(in_group & (programs == program))
            n_places = int(launches.first[at[0] + 1] - launches.first[at[0]])
            places = launches.first[at][:, None] + np.arange(n_places)
            began, ended = np.fmin.reduce(launches.ready[places], axis=0), np.fmax.reduce(launches.end[places], axis=0)
            found[int(one), int(program)] = np.stack([began, ended])
    return found


def _programs(launches: Launches, group: Ints, mates: dict[tuple[int, int], Floats]) -> Iterator[tuple[Ints, Floats]]:
    """Ranks with one program, in groups that run the same programs: (R, K) their places and (R, 2, E, I) their groups' times.

    Those of their own program come first.
    """
    programs = launches.programs()
    of_group: dict[int, list[int]] = {}
    for one, program in mates:
        of_group.setdefault(one, []).append(program)
    kinds: dict[tuple[int, ...], list[int]] = {}
    for rank_at, (one, program) in enumerate(zip(group.tolist(), programs.tolist(), strict=True)):
        others = sorted(other for other in of_group[one] if other != program)
        kinds.setdefault((program, *others), []).append(rank_at)
    for kind, ranks_at in kinds.items():
        at = np.array(ranks_at)
        n_places = int(launches.first[at[0] + 1] - launches.first[at[0]])
        if n_places:
            times = [np.concatenate([mates[int(group[one]), program] for program in kind], axis=1) for one in at]
            yield launches.first[at][:, None] + np.arange(n_places), np.stack(times)


def _own(launches: Launches, mates: Floats, places: Ints, usual: Mask) -> Floats:
    """(R, K, I) own delays of ranks with K places each; places: (R, K); mates: (R, 2, E, I) see `_programs`."""
    ready = launches.ready[places]
    tail = np.median(launches.on_wire_ns[places], axis=0)
    own = np.full(ready.shape, np.inf)
    for began, ended, on_wire in ((mates[:, 0], mates[:, 1], None), (ready, launches.end[places], tail)):
        ends = _with_earlier(ended)
        candidates = _candidates(ready, _with_earlier(began), ends, usual, on_wire)
        for k, (before, late_ns) in enumerate(candidates):
            own[:, k] = np.minimum(own[:, k], _shift(ready[:, k], ends[:, before], usual, late_ns))
    own = np.where(np.isinf(own), np.nan, own)
    return _explained_by_arrival(own, ready, launches.arrived[places], launches.is_tree[places], usual)


def _with_earlier(ends: Floats) -> Floats:
    """(R, 2E, I) the ends (R, E, I) of an iteration, then those of the one before."""
    earlier = np.concatenate([np.full((*ends.shape[:2], 1), np.nan), ends[:, :, :-1]], axis=2)
    return np.concatenate([ends, earlier], axis=1)


def _candidates(
    ready: Floats, begins: Floats, ends: Floats, usual: Mask, on_wire: Floats | None
) -> list[tuple[Ints, Floats]]:
    """For each of K places, the latest EXPLAINED_BY_MAX of the ends that usually came before it, and by how much later
    than the place each may have come.

    A rank's own op is over for its GPU when the last chunk lies ready: what comes after may begin while that is still on
    the wire (on_wire: for how long, (K,); None for the ends of mates), and what passed through it alone is over when half
    of a mate's op is. Of two such ops the one that began first may explain the other, never both each other.
    """
    base = np.fmin.reduce(ready, axis=1, keepdims=True)
    at = _typical(ready - base, usual)
    ended = _typical(ends - base, usual)
    since = _typical(begins - base, usual)
    late = np.maximum((ended - since) / 2 if on_wire is None else np.tile(on_wire, 2), BEFORE_NS)
    found = []
    for k, start in enumerate(at):
        before = np.flatnonzero((ended <= start + late) & (since < start))
        if on_wire is None:
            before = before[before != k]
        before = before[np.argsort(-ended[before], kind="stable")][:EXPLAINED_BY_MAX]
        found.append((before, late[before]))
    return found


def _typical(times: Floats, usual: Mask) -> Floats:
    """(n,) medians of (R, n, I) over ranks and usual launches."""
    found: Floats = np.nanmedian(times[:, :, usual], axis=(0, 2))
    return found


def _shift(ready: Floats, ends: Floats, usual: Mask, late_ns: Floats) -> Floats:
    """(R, I) the least by which the gaps between these ends (R, C, I) and the start (R, I) exceed their usual length: ∞ where
    no end usually came first, NaN where one is unknown. late_ns: (C,)."""
    gap = ready[:, None] - ends
    typical = _median(gap[:, :, usual])
    is_first = typical >= -late_ns
    gap -= typical[..., None]
    gap[~is_first] = np.inf
    found: Floats = gap.min(axis=1, initial=np.inf)
    return found


def _explained_by_arrival(own: Floats, ready: Floats, arrived: Floats, is_tree: Mask, usual: Mask) -> Floats:
    """A launch that begins with a peer's data is no later than that data makes it. In a tree it may wait for several."""
    waited = np.nan_to_num(ready - arrived)
    is_fed = np.isfinite(arrived[:, :, usual]).mean(axis=2) > 0.5
    typical = np.median(waited[:, :, usual], axis=2)
    since = np.where(np.isfinite(arrived), waited - typical[:, :, None], np.nan)
    since[is_tree] = np.nan
    explained = np.where(is_fed[:, :, None] & np.isfinite(since), np.fmin(own, since), own)
    explained[is_fed & is_tree] = np.nan
    return explained


def _median(values: Floats) -> Floats:
    """(n,) medians of the last axis, NaN where nothing is known."""
    known = np.sort(values, axis=-1)  # NaN goes last
    n = np.isfinite(known).sum(axis=-1)
    at = np.maximum(n - 1, 0) // 2
    found: Floats = (
        np.take_along_axis(known, at[..., None], axis=-1)[..., 0] if known.shape[-1] else np.full(n.shape, np.nan)
    )
    return found
