"""The diagnosis of a bundle: dumps of a job that nobody traced, read and fused offline.

The same code as for a running job (rca/dumps/dumped.py) makes it. What could not be read, and which sources there were none of,
is part of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from nccl_instrument import dumps
from nccl_instrument.dumps import Silent
from rca.bundle.contents import Contents
from rca.dumps.dump_parts import looks_of
from rca.dumps.dumped import Dumped, with_dumps
from rca.dumps.fusion import RECORDER, STACKS
from rca.findings import Diagnosis, Symptom, SymptomKind
from rca.flight_recorder.analysis import UNREADABLE
from rca.flight_recorder.reading import rank_in_name
from rca.flight_recorder.recording import Recording
from rca.settings import DEFAULT, Settings
from rca.stacks.analysis import doing_of
from rca.stacks.places import WAITS

NO_STALL: Final = (
    "Nothing in the dumps shows that the job stands still: no op was in progress, and no rank was seen to wait."
)

NONE_HELD: Final = "the bundle holds none"


def dumped_in(contents: Contents) -> Dumped:
    """What was found, as if the nodes had sent it. Several dumps of a process are looks, in the order of their names."""
    first, last = looks_of(enumerate(contents.stacks))
    recorded = contents.recording is not None
    unread = _unread(contents.recording) if contents.recording is not None else {}
    told = {one.kind for one in contents.silent}
    recorded |= dumps.RECORDER in told
    return Dumped(
        first, last, contents.recording, tuple(contents.ras), (*contents.silent, *unread.values()),
        tuple((name, why) for name, why in contents.refused.items() if name not in unread),
        asked=frozenset([*([STACKS] if first or dumps.STACKS in told else []), *([RECORDER] if recorded else [])]),
        unasked=NONE_HELD, taken_ns=_last_ns(contents),
    )  # fmt: skip


def _unread(recording: Recording) -> dict[str, Silent]:
    """File → its rank, of which nothing else was brought that can be read."""
    ranks = {name: rank_in_name(name) for name in recording.refused}
    return {
        name: Silent(rank, "", dumps.RECORDER, f"{UNREADABLE}: {recording.refused[name]}")
        for name, rank in ranks.items()
        if rank not in recording.ranks
    }


def diagnose_bundle(
    dumped: Dumped, job: str, members: Mapping[str, tuple[int, ...]] | None = None, settings: Settings = DEFAULT
) -> Diagnosis:
    """members: process group → ranks, where the launcher knows what the dumps do not say."""
    last_ns = dumped.taken_ns
    symptom = Symptom(
        SymptomKind.EXTERNAL, job, 0, last_ns, last_ns, 0, (), "Dumps of a job were brought to be looked at."
    )
    nothing = Diagnosis(
        symptom=symptom, findings=(), victims=(), path=(), communicators={}, missing=(), downgraded=(),
        thresholds=settings.thresholds(), analysed_ns=last_ns,
    )  # fmt: skip
    found = with_dumps(nothing, dumped, settings, has_traces=False, members=members)
    if found.findings or _stands_still(dumped):
        return found
    return replace(found, layer="", missing=(*found.missing, NO_STALL))


def _stands_still(dumped: Dumped) -> bool:
    """Whether anything shows it: an op that a rank has begun and not finished, or ranks that wait and do not move.

    Nobody's trigger fired for these dumps: they may be of a job that is well.
    """
    is_open = dumped.recording is not None and not dumped.recording.entries["is_finished"].all()
    waits = (one.is_frozen is not False and one.place in WAITS for one in doing_of(dumped.first, dumped.last))
    return is_open or any(waits)


def _last_ns(contents: Contents) -> int:
    return int(contents.recording.entries["created_ns"].max(initial=0)) if contents.recording is not None else 0
