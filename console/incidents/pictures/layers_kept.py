"""Layers of what lies ready: the classes of a request's stacks, and how late ranks left the leading stage of windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from console.incidents.pictures.layers import LayerClass, Notes, Values, nothing_known
from rca.frontier.lateness import unpack_lateness
from rca.frontier.told import ALIKE_SHARE

TRAINER: Final = "trainer"


def stack_classes(stacks: Mapping[str, Any], taken_ns: int, n_ranks: int) -> Values:
    """(n_ranks,) place of each rank's class. stacks: as rca/stacks/view.py writes it. What stands out comes first."""
    groups = [one for one in stacks.get("groups", ()) if one["kind"] == TRAINER]
    most = _most(groups)
    ordered = sorted((one for one in groups if one is not most), key=_telling_first) + ([most] if most else [])
    value, notes = np.full(n_ranks, np.nan), Notes(n_ranks, "its stacks were not read")
    for silent in stacks.get("silent", ()):
        if 0 <= silent["rank"] < n_ranks:
            notes.mark([silent["rank"]], str(silent["why"]))
    for place, one in reversed(list(enumerate(ordered))):  # a rank in several is shown as what stands out most
        ranks = np.array(one["ranks"], np.int64)
        ranks = ranks[(ranks >= 0) & (ranks < n_ranks)]
        value[ranks] = place
        notes.mark(ranks, str(one["said"]))
    if not np.isfinite(value).any():
        return nothing_known(n_ranks, "no stacks of a trainer could be read")
    classes = tuple(LayerClass(str(one["said"]), int(one["count"]), one is most) for one in ordered)
    left_out = int(stacks.get("left_out", 0))
    says = "Ranks whose trainers are in the same calls, by the main thread; the few before the many."
    if left_out:
        says += f" {left_out:,} more classes were left out: their ranks are unknown here."
    return Values(value, notes.at, notes.texts, taken_ns, says, classes=classes)


def _most(groups: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The largest class, unless another is as large: then nobody can say what most do."""
    by_size = sorted(groups, key=lambda one: -int(one["count"]))
    is_tied = len(by_size) > 1 and by_size[0]["count"] == by_size[1]["count"]
    return by_size[0] if by_size and not is_tied else None


def _telling_first(one: Mapping[str, Any]) -> tuple[bool, int, int]:
    """Who only waits for others stands out least; then the fewest first."""
    return bool(one["is_wait"]), int(one["count"]), int(one["ranks"][0]) if one["ranks"] else 0


def stage_lateness(bodies: Sequence[tuple[str, Mapping[str, Any]]], n_ranks: int) -> Values:
    """(n_ranks,) ms behind the median rank of the group. bodies: (role, packet's body), a window of each group."""
    value, notes = np.full(n_ranks, np.nan), Notes(n_ranks, "of its stages nothing was recorded in these steps")
    ends_ns, floor, n_old = list[int](), 0.0, 0
    for role, body in bodies:
        if "late" not in body:
            n_old += 1
            continue
        stage, ranks, late_ms = unpack_lateness(body["late"])
        within = (ranks >= 0) & (ranks < n_ranks)
        value[ranks[within]] = late_ms[within]
        notes.mark(ranks[within], f"at the end of {stage}" + (f", {role}" if role else ""))
        ends_ns.append(int(body["end_ns"]))
        floor = max(floor, ALIKE_SHARE * body["report"]["step_s"] * 1e3)
    if not ends_ns:
        why = "no window of stages was closed around this time"
        return nothing_known(n_ranks, "these windows were kept before lateness was" if n_old else why)
    says = "How long after its group's median rank a rank left the leading stage, mean over a window of steps; below 0: before."
    first_ns, last_ns = min(ends_ns), max(ends_ns)
    until_ns = last_ns if last_ns > first_ns else 0
    return Values(value, notes.at, notes.texts, first_ns, says, full_min=floor, until_ns=until_ns)
