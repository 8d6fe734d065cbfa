"""What the ops' own waits say, and what was measured on the wire (rca/rules/actual_time.py), as one list of findings.

The two see the same fault from two sides. Where they name the same ranks for the same kind of trouble the finding is said once,
with both. Where the waits name somebody surely and the wire somebody else, the wire's is shown and blames nobody. Where the
waits name nobody, the wire leads. A slow way that only the waits suspect is no finding when its bytes took no longer. Without
measured bytes no finding is changed, and that none were is said.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nccl_instrument.tables import TRAFFIC_SOURCES
from rca.asked import Asking
from rca.findings import Component, Evidence, FaultKind, Finding, Grade
from rca.flows import analyzer
from rca.flows.measured import measured_in
from rca.rules import actual_time, slow_copy, slow_proxy
from rca.slow.slow_words import excess_ms
from rca.slow.slowdown import Slowdown

CALM_MAX = 0.25
"""Of what a finding about the wire accounts for, longer on the wire: with less its bytes go as ever."""
CAPTURE = TRAFFIC_SOURCES.index("capture")
FAR_MORE = 3.0
"""Times what another finding accounts for."""
WAITS = "the waits of its own ops, flows and proxy"
_WIRE = (FaultKind.COMMUNICATION_FAIL_SLOW, FaultKind.COMMUNICATION_FAIL_STOP)


def with_measured(found: list[Finding], slowdown: Slowdown, asking: Asking) -> tuple[list[Finding], tuple[str, ...]]:
    """(findings, what was not measured). found: what the other rules say, best first."""
    measured = [one for one in asking.ask(actual_time.explain) if not _is_noticed_late(one, found, slowdown)]
    if not measured and not len(slowdown.window.rows("traffic")):
        return found, actual_time.missing(slowdown)
    is_named = any(one.culprits or _is_sure(one) for one in found)
    group = [] if is_named or measured else list(asking.ask(actual_time.explain_group))
    if is_named or measured or group:
        found = _without_calm(found, slowdown)
    found = [_shown(one) if _yields(one, measured) else one for one in found if not _is_hot(one, measured)]
    is_named = any(one.culprits or _is_sure(one) for one in found)
    alone = [one for one in measured if not any(_same(one, other) for other in found)]
    found = [_joined(one, measured) for one in found]
    return [*found, *group, *(_shown(one) if is_named else one for one in alone)], actual_time.missing(slowdown)


def _same(one: Finding, other: Finding) -> bool:
    """Whether both tell of the same trouble: some of the same ranks, and both or neither of them the wire."""
    if one.kind is FaultKind.GROUP_ANOMALY or other.kind is FaultKind.GROUP_ANOMALY:
        return one.kind is other.kind and one.component is other.component
    return (one.kind in _WIRE) == (other.kind in _WIRE) and bool(one.suspects & other.suspects)


def _yields(one: Finding, measured: list[Finding]) -> bool:
    """Whether a GPU is blamed for chunks that lie, which the slow wire of another rank explains: who sends beside it runs ahead.
    Its bytes were seen to take longer, for half of the lost time, which no GPU makes them do."""
    sure = [other for other in measured if other.culprits and other.grade is Grade.STRONG]
    told = [other for other in measured if other.culprits and other.grade is not Grade.WEAK]
    more = [other for other in told if excess_ms(other) >= FAR_MORE * excess_ms(one) > 0]
    is_guess = bool(one.culprits) and one.grade is not Grade.STRONG and not any(_same(one, other) for other in sure)
    if is_guess and more:
        return True  # it explains little, beside what was measured and explains most
    if one.rule != slow_copy.RULE:
        return False
    late = [other for other in measured if other.component is Component.PROXY and other.grade is Grade.STRONG]
    if any(one.suspects <= other.suspects for other in late):
        return True  # chunks of all ranks of that machine lie, since its proxies are late
    wire = [other for other in measured if other.kind in _WIRE and other.culprits and other.grade is Grade.STRONG]
    return bool(wire) and not any(one.suspects & other.suspects for other in wire)


def _is_noticed_late(one: Finding, found: list[Finding], slowdown: Slowdown) -> bool:
    """Whether a slow wire is told of ranks whose proxies are late off the wire, too: a plugin, or who watches a proxy's calls,
    knows that a chunk is done when the proxy does. What was captured in the network is as it was."""
    late = {rank for other in found if other.rule == slow_proxy.RULE for rank in other.culprits}
    rows = measured_in(slowdown).rows
    is_seen_in_network = bool((rows["source"] == CAPTURE).any())
    return one.kind in _WIRE and not is_seen_in_network and bool(one.culprits) and set(one.culprits) <= late


def _is_hot(one: Finding, measured: list[Finding]) -> bool:
    """Whether a slow way is one to experts that are sent more: as fast as ever, and what its port counts is the job's."""
    hot = [
        other for other in measured if other.component is Component.GPU and other.kind not in _WIRE and other.culprits
    ]
    return one.kind in _WIRE and any(one.suspects & other.suspects for other in hot)


def _joined(one: Finding, measured: list[Finding]) -> Finding:
    """A finding of the waits with what the wire adds to it: who of several it is, or that it agrees."""
    same = next((other for other in measured if _same(other, one)), None)
    if same is None:
        return replace(one, evidence=(*one.evidence, Evidence(actual_time.TOLD_BY, WAITS, "", "op")))
    by_wire = tuple(fact for fact in same.evidence if fact.source == "traffic")
    measured_ms = Evidence("longer by what was measured on the wire", excess_ms(same), "ms", "traffic")
    both = replace(one, evidence=(*one.evidence, measured_ms, *by_wire))
    if one.culprits or not same.culprits or not set(same.culprits) < one.suspects:
        return both
    return replace(same, evidence=(*one.evidence, *same.evidence))


def _is_sure(one: Finding) -> bool:
    """Whether it says where the trouble is, though it blames nobody."""
    return (bool(one.tied) and one.grade is not Grade.WEAK) or one.kind is FaultKind.GROUP_ANOMALY


def _shown(one: Finding) -> Finding:
    """Beside somebody who is named, blaming nobody."""
    return replace(
        one, culprits=(), grade=Grade.WEAK, score=round(0.5 * one.score, 4),
        sentence=f"{one.sentence} Others explain the lost time, so nobody is blamed for it.",
    )  # fmt: skip


def _without_calm(found: list[Finding], slowdown: Slowdown) -> list[Finding]:
    """Without weak findings about ways whose bytes, as measured, take no longer."""
    measured = measured_in(slowdown)
    if not analyzer.is_measured(slowdown, measured):
        return found
    longer = analyzer.wire_excess_ns(slowdown, measured)
    return [one for one in found if one.culprits or not _is_calm(one, slowdown, longer)]


def _is_calm(one: Finding, slowdown: Slowdown, longer_ns: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bool:
    if one.kind not in _WIRE or one.grade is not Grade.WEAK:
        return False
    mine = longer_ns[np.isin(slowdown.iterations.ranks, one.subject.ranks)]
    return bool(len(mine)) and bool((mine <= CALM_MAX * excess_ms(one) * 1e6).all())
