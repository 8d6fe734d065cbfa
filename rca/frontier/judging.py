"""The verdict of a window: its packet, whether the step has moved, and what lasts of it.

One long step, an evaluation or a checkpoint, moves nothing (moved.py), so it must not name anybody either when the step has
moved for another reason: a window that moved is labelled once more without its longest steps, and that report decides who
and what is named. The accounts that are kept and shown are of all steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ingest.window import Window
from rca.frontier.cutting import Cut
from rca.frontier.gates import gates_of
from rca.frontier.groups import Group
from rca.frontier.moved import Moved, Pace, lasting, moved
from rca.frontier.normal import Normal, Seen, late_s
from rca.frontier.packet import Packet, packet_of
from rca.frontier.report import Report
from rca.settings import Settings


@dataclass(frozen=True, slots=True)
class Judgement:
    """packet: of all steps. report: what the verdict rests on, of the steps that last where the window moved."""

    packet: Packet
    moved: Moved
    report: Report


def judge(cut: Cut, group: Group, told: Window, normal: Normal, settings: Settings) -> Judgement:
    """The verdict of a cut window against the job's normal. told: as for packet_of."""
    usual_s, gates = normal.reference(settings.stage_usual_windows), gates_of(settings)
    packet = packet_of(cut, group, told, gates, usual_s)
    found = _moved(packet.report, packet.pace, normal, settings)
    if not found.has_moved:
        return Judgement(packet, found, packet.report)
    rest = packet_of(without_longest(cut, packet), group, told, gates, usual_s)
    pace = replace(packet.pace, exposed_s=rest.pace.exposed_s)
    found = _moved(rest.report, pace, normal, settings)
    return Judgement(packet, replace(found, explains=explained(rest, found, normal)), rest.report)


def seen_of(packet: Packet) -> Seen:
    """What later windows are compared with, of a window in which nothing had moved."""
    return Seen(packet.pace, packet.usual_s, packet.body["ranks"])


def _moved(report: Report, pace: Pace, normal: Normal, settings: Settings) -> Moved:
    held = [one.pace for one in normal.held]
    return moved(report, pace, normal.newest_paces, settings, held)


def without_longest(cut: Cut, packet: Packet) -> Cut:
    """The window without its longest few steps."""
    exposed = packet.accounts.exposed
    kept = np.sort(np.argsort(exposed, kind="stable")[: len(lasting(exposed))])
    return replace(
        cut, steps=cut.steps[kept], durations=cut.durations[kept], ended_ns=cut.ended_ns[kept],
        overlap_s=cut.overlap_s[kept], flags=cut.flags[kept],
    )  # fmt: skip


def explained(packet: Packet, found: Moved, normal: Normal) -> float:
    """Which share of what was added to the step the leader is later by than it usually is; 0 without a leader.

    A rank that is clearly ahead need not be why: of a step that grew by 150 ms on all ranks it may be late by 10.
    """
    leader, stage = packet.report.leader, packet.report.stage
    added_s = found.step_s - found.usual_s
    if leader is None or added_s <= 0:
        return 0.0
    later_s = late_s(packet.body["ranks"], leader, stage) - normal.late_s(leader, stage)
    return round(later_s / added_s, 6)
