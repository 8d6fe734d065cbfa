"""Dumps as pages show them: of a running job, and of a bundle that somebody brought."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nccl_instrument.dumps import Silent
from rca.dumps.dumped import Dumped, unheard_in
from rca.dumps.fusion import RECORDER, STACKS
from rca.findings import to_json
from rca.flight_recorder.analysis import findings_of, waiting_of
from rca.flight_recorder.moving import moving
from rca.flight_recorder.view import recorder_view
from rca.stacks.reading import FRAMES_MAX
from rca.stacks.view import KINDS, as_lines, frames_of, stacks_view

SILENT_MAX: Final = 200
TEXT_CHARS_MAX: Final = 8 * 2**20

Json = dict[str, Any]


def views_of(dumped: Dumped, members: Mapping[str, tuple[int, ...]] | None = None) -> Json:
    """stacks and recorder, each null when nobody was asked for it."""
    silent = {source: _silent(dumped, source) for source in (STACKS, RECORDER)}
    told = {source: _told(those) for source, those in silent.items()}
    stacks = recorder = None
    if dumped.first or silent[STACKS]:
        stacks = {**stacks_view(dumped.first, dumped.last), **told[STACKS]}
    if dumped.recording is not None:
        state = waiting_of(dumped.recording, members, unheard_in(dumped))
        view = recorder_view(state, dumped.taken_ns)
        goes_on = moving(state, dumped.recorded_ns)
        findings = () if goes_on else findings_of(state)
        recorder = {**view, "findings": to_json(findings), "moving": goes_on, **told[RECORDER]}
    elif silent[RECORDER]:
        recorder = {**_NO_RECORDER, **told[RECORDER]}
    return {"stacks": stacks, "recorder": recorder}


def ranks_of(dumped: Dumped) -> Json:
    """Rank → its processes with their stacks as text and the trainer's calls, of as many ranks as there is room for."""
    later = {(one.rank, one.pid): one for one in dumped.last}
    found: dict[str, list[Json]] = {}
    room = TEXT_CHARS_MAX
    for one in dumped.first:
        looks = [look for look in (one, later.get((one.rank, one.pid))) if look is not None and not look.silent]
        texts = [as_lines(look) for look in looks]
        room -= sum(map(len, texts))
        if room < 0:
            break
        newest = looks[-1] if looks else one
        found.setdefault(str(one.rank), []).append(
            {
                "pid": one.pid,
                "parent": None,
                "kind": KINDS.get(newest.kind, "other"),
                "command": one.command,
                "silent": newest.silent,
                "looks": [{"taken_at": "", "text": text} for text in texts],
                "frames": frames_of(newest.main, FRAMES_MAX),
            }
        )
    return found


_NO_RECORDER: Final[Json] = {
    "version": "", "backend": "", "groups": [], "last_ops": [], "findings": [], "refused": {},
    "refused_count": 0, "moving": "",
    "left_out": {"groups": 0, "rows": 0, "last_ops": 0},
}  # fmt: skip


def _silent(dumped: Dumped, source: str) -> list[Silent]:
    """One entry a rank, the newest reason, by rank; of unknown ranks one a node."""
    found = {(one.rank, one.node if one.rank < 0 else ""): one for one in dumped.silent if _source(one.kind) == source}
    return [found[key] for key in sorted(found)]


def _told(silent: list[Silent]) -> Json:
    return {"silent": [to_json(one) for one in silent[:SILENT_MAX]], "silent_count": len(silent)}


def _source(kind: str) -> str:
    return STACKS if kind == "stacks" else RECORDER
