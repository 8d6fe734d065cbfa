"""The diagnosis of a bundle: dumps of a job that nobody traced, read and fused offline.

The same findings as the live system would make of the same dumps. What could not be read, and which sources there were
none of, is part of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rca.bundle.contents import Contents
from rca.findings import Diagnosis, Finding, Symptom, SymptomKind, WaitEdge
from rca.flight_recorder import analysis as recorder
from rca.fusion import RAS, RECORDER, STACKS, Fused, fuse
from rca.ras import analysis as ras
from rca.settings import DEFAULT, Settings
from rca.stacks import analysis as stacks
from rca.stacks.process import Process

REFUSED_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class BundleDiagnosis:
    """diagnosis: as for a live job. agreement: a sentence per source. layer: see rca/fusion.py."""

    diagnosis: Diagnosis
    agreement: tuple[str, ...]
    layer: str


def diagnose_bundle(
    contents: Contents, job: str, members: Mapping[str, tuple[int, ...]] | None = None, settings: Settings = DEFAULT
) -> BundleDiagnosis:
    """members: process group → ranks, where the launcher knows what the dumps do not say."""
    state = recorder.waiting_of(contents.recording, members) if contents.recording is not None else None
    said: dict[str, tuple[Finding, ...]] = {}
    if contents.stacks:
        said[STACKS] = stacks.findings_of(*_looks(contents))
    if state is not None and contents.recording is not None and contents.recording.ranks:
        said[RECORDER] = recorder.findings_of(state)
    if contents.ras:
        said[RAS] = tuple(one for report in contents.ras for one in ras.findings_of(report))
    fused = fuse(said, [source for source in (STACKS, RECORDER) if source not in said])
    culprits = fused.findings[0].culprits if fused.findings else ()
    victims, path = recorder.edges_of(state, culprits, settings.path_edges_max) if state is not None else ((), ())
    return BundleDiagnosis(_diagnosis(contents, job, fused, victims, path, settings), fused.agreement, fused.layer)


def _diagnosis(
    contents: Contents, job: str, fused: Fused, victims: tuple[int, ...], path: tuple[WaitEdge, ...], settings: Settings
) -> Diagnosis:
    last_ns = int(contents.recording.entries["created_ns"].max(initial=0)) if contents.recording is not None else 0
    symptom = Symptom(
        SymptomKind.EXTERNAL, job, 0, last_ns, last_ns, 0, (), "Dumps of a job were brought to be looked at."
    )
    refused = [f"{name}: {why}." for name, why in list(contents.refused.items())[:REFUSED_SHOWN]]
    if len(contents.refused) > REFUSED_SHOWN:
        refused.append(f"{len(contents.refused) - REFUSED_SHOWN} more files could not be read.")
    return Diagnosis(
        symptom=symptom, findings=fused.findings[: settings.findings_max], victims=victims, path=path, communicators={},
        missing=tuple(refused), downgraded=(), thresholds=settings.thresholds(), analysed_ns=last_ns,
    )  # fmt: skip


def _looks(contents: Contents) -> tuple[list[Process], list[Process]]:
    """Of processes that were looked at more than once, the first and the last look."""
    first: dict[tuple[int, int], Process] = {}
    last: dict[tuple[int, int], Process] = {}
    for one in contents.stacks:
        key = (one.rank, one.pid)
        if key in first:
            last[key] = one
        else:
            first[key] = one
    return list(first.values()), list(last.values())
