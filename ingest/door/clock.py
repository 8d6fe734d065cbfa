"""Whether a node's wall clock can be trusted, and where on our time axis its batches belong.

A batch whose wall time is far from the time it arrived is either late (a spool is draining) or comes from a wrong
clock. The monotonic clock tells the two apart: (received − monotonic) is the same for every fresh batch of one boot
and larger for every late one, so its smallest value, `sync_ns`, converts the boot's monotonic times to ours without
looking at the wall clock at all. Pure: no database, no clock of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TOLERANCE_NS: Final = 5_000_000_000
"""A wall clock this far off is called wrong; closer ones are used as they are."""
LATE_NS: Final = 5_000_000_000
"""A batch that arrives this long after it was cut is from a spool: the node is catching up."""
PACE_BATCHES: Final = 3
"""So many batches in a row that came as far apart as they were cut: the boot is not draining a spool."""
DRIFT_PPM: Final = 200
"""sync_ns may creep up by this much, or two oscillators that drift apart would in time look like a wrong clock."""


@dataclass(frozen=True, slots=True)
class BootClock:
    """What is known of one boot's clocks. sync_ns: received − monotonic of its freshest batch, None before any."""

    sync_ns: int | None = None
    newest_mono_ns: int = 0
    pace: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a batch belongs: unix ns = monotonic + shift_ns. offset_ns: node's wall clock minus ours, 0 when right."""

    shift_ns: int
    offset_ns: int
    wrong_clock: bool
    catching_up: bool
    clock: BootClock


def place_batch(clock: BootClock, wall_ns: int, mono_ns: int, received_ns: int, age_ns: int | None = None) -> Placement:
    """Place a batch cut at (wall_ns, mono_ns) and received at received_ns, all ns.

    age_ns: how long ago the node says it was cut, by its monotonic clock; None when it does not say. A clock that is
    ahead is proven at once, since nothing arrives before it was cut. One that is behind looks like a spool until the
    boot has sent at the pace it cuts, or has said how old its batches are; until then the wall clock is believed.
    """
    fresh = _seen(clock, mono_ns, received_ns, age_ns)
    assert fresh.sync_ns is not None
    offset = wall_ns - mono_ns - fresh.sync_ns
    wrong = offset > TOLERANCE_NS or (offset < -TOLERANCE_NS and fresh.pace >= PACE_BATCHES)
    shift = fresh.sync_ns if wrong else wall_ns - mono_ns
    late = received_ns - (mono_ns + shift) > LATE_NS
    return Placement(shift, offset if wrong else 0, wrong, late, fresh)


def _seen(clock: BootClock, mono_ns: int, received_ns: int, age_ns: int | None) -> BootClock:
    sample = received_ns - mono_ns - (age_ns or 0)
    newest = max(clock.newest_mono_ns, mono_ns)
    if clock.sync_ns is None:
        return BootClock(sample, newest, PACE_BATCHES if age_ns is not None else 0)
    elapsed = newest - clock.newest_mono_ns
    sync = min(sample, clock.sync_ns + elapsed * DRIFT_PPM // 1_000_000)
    if age_ns is not None:
        return BootClock(sync, newest, PACE_BATCHES)
    if not elapsed:
        return BootClock(sync, newest, clock.pace)
    drained = clock.sync_ns - sync > elapsed // 2  # arrived much closer together than they were cut
    return BootClock(sync, newest, 0 if drained else min(clock.pace + 1, PACE_BATCHES))
