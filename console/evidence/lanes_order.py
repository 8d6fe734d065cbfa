"""Which of an incident's flows are told first, and what each does, in words: the page's order, lane for lane.

The same as frontend/src/lanes/order.ts and scale.ts; a test compares them. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from console.evidence.svg import ROLE, roles
from console.incidents.pictures.lanes import Lane, Lanes
from rca.findings import Diagnosis

ROWS_MAX: Final = 32
"""More rows make a picture that no ticket shows whole; what is left out is counted."""
STALL_MS: Final = 500
MS: Final = 1_000_000
FRESH_NS: Final = 1500 * MS
SAME_TICK_NS: Final = 50 * MS
SEND_WORDS: Final = {
    "not_started": "Not started", "not_transmitted": "Ready but not transmitted",
    "not_delivered": "Transmitted but not delivered", "gpu_not_ready": "GPU not ready with the next chunk",
}  # fmt: skip
RECEIVE_WORDS: Final = {
    "not_started": "Nothing received yet", "not_transmitted": "Received but not flushed",
    "not_delivered": "Flushed but not consumed by the GPU", "gpu_not_ready": "Next chunk not yet received",
}  # fmt: skip
CITED: Final = re.compile(r"(.*) op \d+ channel (\d+), rank (\d+) to (\d+)")
NO_OP: Final = "No op in progress on this flow"
COMPLETE: Final = "Op complete"


@dataclass(frozen=True, slots=True)
class Row:
    """A lane and the tick that tells what it did at the end of what is drawn; -1: none does."""

    lane: Lane
    tick: int

    @property
    def is_stuck(self) -> bool:
        return self.tick >= 0 and self.lane.stuck_ms[self.tick] >= STALL_MS


def shown(lanes: Lanes, diagnosis: Diagnosis | None) -> tuple[list[tuple[str, list[Row]]], int]:
    """(role, rows) in the page's order, at most ROWS_MAX in all; and how many lanes are not among them.

    No group crowds out those after it: each takes half of what is left, or more where those after it need less.
    """
    weighed = _weights(lanes, diagnosis)
    role = roles({lane.rank for lane in lanes.lanes}, diagnosis)
    grouped: dict[str, list[Row]] = defaultdict(list)
    for _, _, row in sorted(weighed, key=lambda one: one[:2]):
        grouped[role[row.lane.rank]].append(row)
    groups = [(name, grouped[name]) for name in ROLE if grouped[name]]
    room, made = ROWS_MAX, []
    for at, (name, rows) in enumerate(groups):
        later = sum(len(others) for _, others in groups[at + 1 :])
        kept = rows[: max(-(-room // 2), room - later)]
        room -= len(kept)
        made += [(name, kept)] if kept else []
    return made, len(lanes.lanes) - sum(len(rows) for _, rows in made)


def _weights(lanes: Lanes, diagnosis: Diagnosis | None) -> Iterator[tuple[int, tuple[object, ...], Row]]:
    """What the verdict rests on first, then what else stands, then what moves, flows without an op last; of those alike but not
    cited the ones with a culprit at the other end; then by name."""
    cited = _cited(diagnosis)
    suspects = diagnosis.suspects if diagnosis else frozenset[int]()
    affected = _affected(diagnosis)
    for lane in lanes.lanes:
        row = Row(lane, telling_tick(lane, end_ns(lanes)))
        flow = (lane.rank, lane.peer_rank, lane.channel, lane.direction[:1])
        is_cited = not cited.isdisjoint(((*flow, ""), (*flow, lane.comm_name)))
        if row.tick < 0:
            weight = 5 if is_cited else 6
        elif is_cited:
            weight = 0
        elif not row.is_stuck:
            weight = 4
        elif affected and lane.comm_name not in affected:
            weight = 3
        else:
            weight = 1 if lane.rank in suspects else 2
        is_far = weight > 0 and lane.peer_rank not in suspects
        yield weight, (is_far, lane.rank, lane.peer_rank, lane.comm_name, lane.channel, lane.direction), row


def _cited(diagnosis: Diagnosis | None) -> set[tuple[int, int, int, str, str]]:
    """Flows that the best finding's conditions (they name no communicator) and evidence (both its ends) speak of."""
    if diagnosis is None or not diagnosis.findings:
        return set()
    best = diagnosis.findings[0]
    cited = {(one.rank, one.peer_rank, one.channel, one.direction[:1], "") for one in best.conditions}
    for found in (CITED.match(one.what) for one in best.evidence):
        if found:
            comm, (channel, sender, receiver) = found[1], (int(one) for one in found.groups()[1:])
            cited |= {(sender, receiver, channel, "s", comm), (receiver, sender, channel, "r", comm)}
    return cited


def _affected(diagnosis: Diagnosis | None) -> set[str]:
    """Communicators in which the waiting goes on: of the path, else the one the symptom speaks of."""
    if diagnosis is None:
        return set()
    ids = {edge.comm_id for edge in diagnosis.path} or {diagnosis.symptom.comm_id}
    return {name for name in (diagnosis.communicators.get(str(comm)) for comm in ids) if name}


def end_ns(lanes: Lanes) -> int:
    return min(lanes.to_ns, lanes.newest_ns)


def telling_tick(lane: Lane, at_ns: int) -> int:
    """Of the ops in progress at a moment, the tick of the unfinished one that is stuck longest; -1: none in progress, or seen."""
    before = [i for i, t_ns in enumerate(lane.t_ns) if t_ns <= at_ns]
    if not before or at_ns - lane.t_ns[before[-1]] > FRESH_NS:
        return -1
    alike = [i for i in before if lane.t_ns[before[-1]] - lane.t_ns[i] < SAME_TICK_NS]
    return max(alike, key=lambda i: (condition(lane, i) != "", lane.stuck_ms[i], -lane.ops[i]))


def condition(lane: Lane, tick: int) -> str:
    """Table 4's condition, "" when the op is complete."""
    ready, transmitted, done, total = lane.ready[tick], lane.transmitted[tick], lane.done[tick], total_of(lane, tick)
    if done >= total > 0:
        return ""
    if ready == transmitted == done == 0:
        return "not_started"
    if ready > transmitted:
        return "not_transmitted"
    return "not_delivered" if transmitted > done else "gpu_not_ready"


def total_of(lane: Lane, tick: int) -> int:
    """total_chunks is the newest op's; an older op of another size is scaled by what it posted."""
    is_newest = lane.ops[tick] == lane.ops[-1]
    return lane.total_chunks if is_newest else max(lane.posted[tick], lane.ready[tick], lane.total_chunks)


def words_of(row: Row, goes_on: bool = False) -> str:
    """What the flow does, from its own side, and for how long it has stood; more than that, where more is known than is drawn."""
    lane, tick = row.lane, row.tick
    if tick < 0:
        return NO_OP
    words = RECEIVE_WORDS if lane.direction.startswith("r") else SEND_WORDS
    said = words.get(condition(lane, tick), COMPLETE)
    if not row.is_stuck:
        return said
    stuck_ms = lane.stuck_ms[tick]
    return f"{said} · " + (f"> {stuck_ms // 1000} s" if goes_on else f"{stuck_ms / 1000:.1f} s")
