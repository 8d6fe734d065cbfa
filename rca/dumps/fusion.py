"""One answer from several sources, in the order in which they bound the layer (Mycroft §6.2).

Stacks come first: a rank in its data loader explains whatever the collectives show. Then the Flight Recorder: a rank that
is behind, an op left out, a wrong order. Then the collective layer, which sees inside an op everybody has entered. Only a
NIC whose port was read to be down comes before ranks that wait for a lock or for data. When all of them are silent the
trouble is below. What agrees, what disagrees and what was missing is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nccl_instrument.stage_schema import DATA
from rca.findings import Component, Evidence, FaultKind, Finding, Grade
from rca.stacks.places import Place

STACKS: Final = "stacks"
RECORDER: Final = "flight recorder"
RAS: Final = "RAS"
COLLECTIVE: Final = "collective layer"
STAGES: Final = "stages"
ORDER: Final = (STACKS, RECORDER, COLLECTIVE, STAGES, RAS)

DATA_LOADER: Final = "data loader"
CHECKPOINT: Final = "checkpoint"
OUT_OF_SYNC: Final = "out of sync"
INSIDE: Final = "collective"
BELOW: Final = "below"
_GRADES: Final = list(Grade)
_PLACES: Final = {
    Place.DATA_LOADER.value: DATA_LOADER,
    Place.CHECKPOINT_SAVE.value: CHECKPOINT,
    Place.CHECKPOINT_LOAD.value: CHECKPOINT,
}
_WAITS: Final = frozenset({Place.LOCK.value, Place.DATA_LOADER.value, Place.CODE.value, Place.NOTHING.value})
_BETWEEN_OPS: Final = frozenset({FaultKind.MISMATCH, FaultKind.DEADLOCK})


@dataclass(frozen=True, slots=True)
class Fused:
    """findings: best first. source: whose the best is, '' when nobody is named. agreement: a sentence per source.

    layer: where the trouble is, '' when nobody can tell.
    """

    findings: tuple[Finding, ...]
    source: str
    agreement: tuple[str, ...]
    layer: str


def fuse(
    said: Mapping[str, Sequence[Finding]],
    missing: Mapping[str, str] | None = None,
    partial: Mapping[str, str] | None = None,
) -> Fused:
    """said: source → its findings, best first; missing: source that could not be asked → why; partial: source that saw too
    few of the ranks for its silence to count → how few."""
    said = {**said, STACKS: _backed(said)} if STACKS in said else said
    leading = _leading(said)
    ordered = [one for source in ORDER for one in said.get(source, ())]
    agreement = _agreement(said, missing or {}, partial or {}, leading)
    if leading is None:
        return Fused(tuple(ordered), "", agreement, _layer(said, None, partial or {}))
    source, best = leading
    best = _supported(best, source, said)
    rest = [one for one in ordered if one is not leading[1]]
    return Fused((best, *rest), source, agreement, _layer(said, leading, partial or {}))


def _leading(said: Mapping[str, Sequence[Finding]]) -> tuple[str, Finding] | None:
    """The first source in the paper's order that names somebody without doubt, else the one that is most sure."""
    naming = [(source, one) for source in ORDER for one in said.get(source, ())[:1] if one.culprits or one.tied]
    if any(_is_seen_down(one) for _, one in naming):
        naming = _not_held_up(naming)
    sure = [(source, one) for source, one in naming if one.grade is not Grade.WEAK and one.culprits]
    if sure:
        first, strong = sure[0], [pair for pair in sure if pair[1].grade is Grade.STRONG]
        # Stacks of one look are less sure than a recorder that saw who is behind; where both name the same, they say why.
        same = [pair for pair in sure[1:] if set(pair[1].culprits) == set(first[1].culprits)]
        is_backed = bool(same)
        stopped = [pair for pair in same if pair[1].component is Component.PROCESS and pair in strong]
        if stopped:  # where a process is that was stopped or has ended says nothing of why
            return stopped[0]
        return first if is_backed or not strong else strong[0]
    return min(naming, key=lambda pair: (_GRADES.index(pair[1].grade), not pair[1].culprits), default=None)


def _backed(said: Mapping[str, Sequence[Finding]]) -> tuple[Finding, ...]:
    """What stacks say, surer of ranks in their own code that the recorder or the traces miss in an op."""
    missed = {
        rank
        for source in (RECORDER, COLLECTIVE)
        for one in said.get(source, ())
        if one.kind is FaultKind.COMPUTATION_FAIL_STOP and one.grade is not Grade.WEAK
        for rank in one.culprits
    }
    return tuple(
        replace(one, grade=Grade.MODERATE, score=max(one.score, 0.7))
        if one.grade is Grade.WEAK and one.culprits and missed.issuperset(one.culprits)
        else one
        for one in said[STACKS]
    )


def _is_seen_down(finding: Finding) -> bool:
    """Whether a NIC's port was read to be down: hardware that cannot be the others' doing."""
    is_sure = finding.component is Component.NIC and finding.grade is not Grade.WEAK
    return is_sure and any(one.source == "nic" and one.value == "down" for one in finding.evidence)


def _not_held_up(naming: Sequence[tuple[str, Finding]]) -> list[tuple[str, Finding]]:
    """Without ranks that by their stacks wait for a lock or a batch, which may well be what a dead port does to them."""
    held = [
        one.culprits for source, one in naming if source == STACKS and _WAITS & {fact.what for fact in one.evidence}
    ]
    return [(source, one) for source, one in naming if _is_seen_down(one) or one.culprits not in held]


def _supported(best: Finding, source: str, said: Mapping[str, Sequence[Finding]]) -> Finding:
    """With the evidence of others that name the same ranks, which makes it surer."""
    others = [
        (other, one)
        for other, findings in said.items()
        for one in findings[:1]
        if other != source and one.culprits and set(one.culprits) == set(best.culprits)
    ]
    if not others:
        return best
    evidence = tuple(Evidence(f"{other} agrees", one.sentence, "", other) for other, one in others)
    return replace(best, evidence=(*best.evidence, *evidence), grade=Grade.STRONG, score=max(best.score, 0.9))


def _agreement(
    said: Mapping[str, Sequence[Finding]],
    missing: Mapping[str, str],
    partial: Mapping[str, str],
    leading: tuple[str, Finding] | None,
) -> tuple[str, ...]:
    found = []
    for source in ORDER:
        if source in missing:
            found.append(f"No {source}: {missing[source]}.")
        elif source in said:
            found.append(_stance(source, said[source], partial.get(source, ""), leading))
    return tuple(found)


def _stance(source: str, findings: Sequence[Finding], partial: str, leading: tuple[str, Finding] | None) -> str:
    title = source[:1].upper() + source[1:]
    if not findings:
        return f"{title}: {partial or 'nobody stands out'}."
    best = findings[0]
    if leading is not None and source != leading[0] and best.culprits:
        same = set(best.culprits) == set(leading[1].culprits)
        overlaps = set(best.culprits) & set(leading[1].culprits)
        stance = "same culprit" if same else "agrees in part" if overlaps else "disagrees"
        return f"{title}, {stance}: {best.sentence}"
    return f"{title}: {best.sentence}"


def _layer(
    said: Mapping[str, Sequence[Finding]], leading: tuple[str, Finding] | None, partial: Mapping[str, str]
) -> str:
    """data loader, checkpoint, out of sync, collective, or below: the layers of the paper's integration."""
    best = leading[1] if leading is not None else next(iter(said.get(STACKS, ())), None)
    if best is not None and (leading is None or leading[0] == STACKS):
        places = [_PLACES[fact.what] for fact in best.evidence if fact.source == STACKS and fact.what in _PLACES]
        if places:
            return places[0]
    if leading is None:
        asked = [source for source in (STACKS, RECORDER) if source in said]
        if any(one.grade is not Grade.WEAK for source in asked for one in said[source]):
            return INSIDE
        if any(said[source] for source in asked):
            return ""  # not even whom a send waits for
        return BELOW if asked and not any(source in partial for source in asked) else ""
    if leading[0] == STAGES:  # what a rank does between its ops; of what happens in them stages say nothing
        return DATA_LOADER if any(one.what == "stage" and one.value == DATA for one in leading[1].evidence) else ""
    if not leading[1].culprits and leading[1].kind is FaultKind.UNKNOWN:
        return ""  # somebody of whom nothing is known
    if leading[0] != COLLECTIVE or leading[1].kind in _BETWEEN_OPS or leading[1].component is Component.SOFTWARE:
        return OUT_OF_SYNC
    return BELOW if leading[1].component is Component.PROCESS else INSIDE
