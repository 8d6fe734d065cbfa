"""One answer from several sources, in the order in which they bound the layer (Mycroft §6.2).

Stacks come first: a rank in its data loader explains whatever the collectives show. Then the Flight Recorder: a rank that
is behind, an op left out, a wrong order. Then the collective layer, which sees inside an op everybody has entered. When
all of them are silent the trouble is below. What agrees, what disagrees and what was missing is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rca.findings import Evidence, Finding, Grade
from rca.words import named

STACKS: Final = "stacks"
RECORDER: Final = "flight recorder"
RAS: Final = "RAS"
COLLECTIVE: Final = "collective"
ORDER: Final = (STACKS, RECORDER, COLLECTIVE, RAS)
_GRADES: Final = list(Grade)


@dataclass(frozen=True, slots=True)
class Fused:
    """findings: best first. agreement: a sentence per source. layer: where the trouble is, '' when nobody can tell."""

    findings: tuple[Finding, ...]
    agreement: tuple[str, ...]
    layer: str


def fuse(said: Mapping[str, Sequence[Finding]], missing: Sequence[str] = ()) -> Fused:
    """said: source → its findings, best first; missing: sources that could not be asked."""
    leading = _leading(said)
    ordered = [one for source in ORDER for one in said.get(source, ())]
    if leading is None:
        return Fused(tuple(ordered), _agreement(said, missing, None), _layer(said, None))
    source, best = leading
    best = _supported(best, source, said)
    rest = [one for one in ordered if one is not leading[1]]
    return Fused((best, *rest), _agreement(said, missing, leading), _layer(said, leading))


def _leading(said: Mapping[str, Sequence[Finding]]) -> tuple[str, Finding] | None:
    """The first source in the paper's order that names somebody without doubt, else the one that is most sure."""
    naming = [(source, one) for source in ORDER for one in said.get(source, ())[:1] if one.culprits or one.tied]
    sure = [(source, one) for source, one in naming if one.grade is not Grade.WEAK and one.culprits]
    if sure:
        first, strong = sure[0], [pair for pair in sure if pair[1].grade is Grade.STRONG]
        # Stacks of one look are less sure than a recorder that saw who is behind; where both name the same, they say why.
        is_backed = any(set(one.culprits) == set(first[1].culprits) for _, one in sure[1:])
        return first if is_backed or not strong else strong[0]
    return min(naming, key=lambda pair: _GRADES.index(pair[1].grade), default=None)


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
    said: Mapping[str, Sequence[Finding]], missing: Sequence[str], leading: tuple[str, Finding] | None
) -> tuple[str, ...]:
    found = []
    for source in ORDER:
        if source in missing:
            found.append(f"No {source}: it could not be asked.")
        elif source in said:
            found.append(_stance(source, said[source], leading))
    return tuple(found)


def _stance(source: str, findings: Sequence[Finding], leading: tuple[str, Finding] | None) -> str:
    title = source[:1].upper() + source[1:]
    if not findings:
        return f"{title}: nobody stands out."
    best = findings[0]
    if leading is not None and source != leading[0] and best.culprits:
        same = set(best.culprits) == set(leading[1].culprits)
        overlaps = set(best.culprits) & set(leading[1].culprits)
        stance = "agrees" if same else "agrees in part" if overlaps else "disagrees"
        return f"{title} {stance}: {named(best.culprits)}."
    return f"{title}: {best.sentence}"


def _layer(said: Mapping[str, Sequence[Finding]], leading: tuple[str, Finding] | None) -> str:
    """data loader, checkpoint, out of sync, collective, or below: the layers of the paper's integration."""
    if leading is None:
        asked = [source for source in (STACKS, RECORDER) if source in said]
        return "below" if asked and not any(said[source] for source in asked) else ("collective" if asked else "")
    source, best = leading
    words = f"{best.sentence} {' '.join(fact.what for fact in best.evidence)}".lower()
    if source == STACKS and "data loader" in words:
        return "data loader"
    if source == STACKS and "checkpoint" in words:
        return "checkpoint"
    return "collective" if source == COLLECTIVE else "out of sync"
