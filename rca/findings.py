"""What triggers and rules say: Symptom, Finding, Evidence, Diagnosis, and the words they may use.

These are the values that cross from rca to the console and into the database, so they are frozen, typed, and turn into
plain JSON and back without loss; unknown fields are refused. The enums are the one list of fault components, kinds and
grades, used by every rule, page and accuracy suite.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Json = dict[str, Any]
CREPT = "iterations_that_crept"  # a number of symptoms: slow ones since it is not known when, against the job's first
HABIT = "iterations_of_habit"  # a number of symptoms: long iterations of which it is not known whether they are new
NOBODY_ASKED = "Nobody stands out in what was looked at."


class SymptomKind(StrEnum):
    """What a trigger saw. The incident's key uses it, as of its opening, so a symptom never changes its kind."""

    FAILURE = "failure"  # ops in progress, none completed for Δ (Mycroft Alg. 1)
    STRAGGLER = "straggler"  # throughput halved or op interval doubled
    IDLE = "idle"  # no op in flight anywhere for far longer than usual
    SILENCE = "silence"  # a node or rank sends nothing while others do
    EXTERNAL = "external"  # a person, the API or a watchdog asked


class Component(StrEnum):
    """Where a fault sits; the rows of the fault table."""

    NIC = "nic"
    NETWORK = "network"
    COPY = "copy"
    GPU = "gpu"
    NODE = "node"
    PROXY = "proxy"
    PROCESS = "process"
    SOFTWARE = "software"
    UNKNOWN = "unknown"


class FaultKind(StrEnum):
    COMMUNICATION_FAIL_STOP = "communication_fail_stop"
    COMMUNICATION_FAIL_SLOW = "communication_fail_slow"
    COMPUTATION_FAIL_STOP = "computation_fail_stop"
    COMPUTATION_FAIL_SLOW = "computation_fail_slow"
    MISMATCH = "mismatch"
    DEADLOCK = "deadlock"
    GROUP_ANOMALY = "group_anomaly"
    SILENCE = "silence"
    UNKNOWN = "unknown"


class Grade(StrEnum):
    """How far the evidence carries. STRONG: direct observation at the culprit. MODERATE: inferred from its peers. WEAK:
    the best of several explanations."""

    STRONG = "strong"
    MODERATE = "moderate"
    WEAK = "weak"


class State(StrEnum):
    """The conditions of Mycroft Table 4, for one flow."""

    NOT_STARTED = "not_started"  # ①=②=③=0
    NOT_TRANSMITTED = "not_transmitted"  # ①>②
    NOT_DELIVERED = "not_delivered"  # ②>③
    GPU_NOT_READY = "gpu_not_ready"  # ①=②=③>0


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact: what was measured, its value with unit, and the table (or artifact) and rank it came from."""

    what: str
    value: float | int | str
    unit: str = ""
    source: str = ""
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """What a finding is about. `kind`: rank, node, gpu, nic, link, flow, process, communicator, rack or job."""

    kind: str
    name: str
    ranks: tuple[int, ...] = ()
    node: str = ""


@dataclass(frozen=True, slots=True)
class Cover:
    """How much of a larger whole shows what a finding says: `n` of the `of` things of this kind that `whole` has.

    kind: flow, op, rank, nic, node, communicator. From the smallest step to the largest, as the finding grew.
    """

    kind: str
    n: int
    of: int
    whole: str


@dataclass(frozen=True, slots=True)
class Compared:
    """One quantity as it usually is and as it is now; NaN never: what is unknown is left out."""

    what: str
    usual: float
    now: float
    unit: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another subject that could have been blamed, and why it was not, in one sentence."""

    subject: Subject
    why_not: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeClock:
    """By how much a node's clock is ahead of the median of all, read off the ends of collectives; error_ns: plus or minus."""

    node: str
    offset_ns: int
    error_ns: int


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of Table 4 that holds on a flow, with its two readings and which one both ends' counters support."""

    state: State
    rank: int
    peer_rank: int
    channel: int
    direction: str
    counters: tuple[int, int, int, int]
    total_chunks: int
    local_cause: str
    remote_cause: str
    verdict: str  # "local", "remote", "undecided", or "overruled": direct evidence of the finding says otherwise


@dataclass(frozen=True, slots=True)
class Symptom:
    """What a trigger saw and when. at_ns: data time of the first sign; seen_ns: data time of the look that saw it.

    comm_id is 0 when no communicator stands out. ranks: the sampled ranks that showed it. numbers: measured values and
    the thresholds in force, units in the key.
    """

    kind: SymptomKind
    job: str
    attempt: int
    at_ns: int
    seen_ns: int
    comm_id: int
    ranks: tuple[int, ...]
    sentence: str
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def may_be_habit(self) -> bool:
        """Whether the job may always have been so: then it is nobody's fault unless somebody is caught in the act."""
        return HABIT in self.numbers

    @property
    def crept_times(self) -> float:
        """Times the job's first iterations that those of a normal which crept away from them take; 0 of other symptoms."""
        usual_s = self.numbers.get("iteration_usual_s", 0.0)
        return self.numbers.get("iteration_s", 0.0) / usual_s if CREPT in self.numbers and usual_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class WaitEdge:
    """Rank `waiter` cannot go on before `waits_for` does, in op `op` of `comm_id`; `why` in a few words."""

    waiter: int
    waits_for: int
    comm_id: int
    op: int
    why: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule's answer. culprits: where it started; empty means the rule names a subject but blames no rank.

    score: 0 to 1. tied: other subjects the evidence cannot tell from this one. version: the rule's formula version.
    cover: from flow to everything. parts: where the time of the slow op went, component by component (Mycroft Figure 2).
    began_ns: data time at which the fault set in by this evidence; 0 when it does not say.
    """

    rule: str
    version: int
    subject: Subject
    component: Component
    kind: FaultKind
    culprits: tuple[int, ...]
    score: float
    grade: Grade
    sentence: str
    evidence: tuple[Evidence, ...] = ()
    conditions: tuple[Condition, ...] = ()
    tied: tuple[Subject, ...] = ()
    advice: str = ""
    cover: tuple[Cover, ...] = ()
    parts: tuple[Compared, ...] = ()
    began_ns: int = 0

    @property
    def suspects(self) -> frozenset[int]:
        """Ranks that may have started it: the culprits and those that the evidence cannot tell from them; of a tie that blames
        nobody also whom it is about, of whom only the first few may be told apart in `tied`."""
        told = {*self.culprits, *(rank for subject in self.tied for rank in subject.ranks)}
        return frozenset({*told, *self.subject.ranks} if self.tied and not self.culprits else told)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A symptom and its findings, best first; no findings means "nobody can be named".

    culprits are the first finding's; victims only wait, and are none of its suspects; path: edges from victims to suspects.
    communicators: id → name of those involved. missing: what was not seen, in sentences. downgraded: why grades were lowered.
    thresholds: the settings in force. analysed_ns: data time of the window's end. alternatives: who else could have been
    blamed. compared: the job's own usual against now. clocks: of the nodes whose offset could be estimated. agreement: a
    sentence per source that was asked (rca/dumps/fusion.py). layer: where the trouble is, "" when nobody can tell.
    """

    symptom: Symptom
    findings: tuple[Finding, ...]
    victims: tuple[int, ...]
    path: tuple[WaitEdge, ...]
    communicators: dict[str, str]
    missing: tuple[str, ...]
    downgraded: tuple[str, ...]
    thresholds: dict[str, float]
    analysed_ns: int
    version: int = 2
    alternatives: tuple[Alternative, ...] = ()
    compared: tuple[Compared, ...] = ()
    clocks: tuple[NodeClock, ...] = ()
    agreement: tuple[str, ...] = ()
    layer: str = ""

    @property
    def culprits(self) -> tuple[int, ...]:
        """Ranks blamed: those of the best finding, () when nobody is."""
        return self.findings[0].culprits if self.findings else ()

    @property
    def suspects(self) -> frozenset[int]:
        """Culprits, and of a tie the ranks that may have started it."""
        return self.findings[0].suspects if self.findings else frozenset()

    @property
    def suspects_in_order(self) -> tuple[int, ...]:
        """The suspects, culprits first, the others by their numbers."""
        return (*self.culprits, *sorted(self.suspects - {*self.culprits}))

    @property
    def verdict(self) -> str:
        """The diagnosis in one sentence."""
        if not self.findings:
            # Nothing but a person said so: that anything is wrong is not known.
            is_asked = self.symptom.kind is SymptomKind.EXTERNAL
            return NOBODY_ASKED if is_asked else "Something is wrong, but the evidence names nobody."
        return self.findings[0].sentence


def to_json(value: Any) -> Any:
    """`value` (any dataclass of this module) as dicts, lists, strings and numbers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(inner) for inner in value]
    return value


def diagnosis_from_json(raw: Json) -> Diagnosis:
    """The Diagnosis that `to_json` wrote. ValueError on unknown or missing fields and unknown codes."""
    diagnosis: Diagnosis = _build(Diagnosis, raw)
    return diagnosis


def symptom_from_json(raw: Json) -> Symptom:
    """The Symptom that `to_json` wrote. ValueError as for a diagnosis."""
    symptom: Symptom = _build(Symptom, raw)
    return symptom


def _build(kind: Any, raw: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, raw)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return tuple(_build(inner[0], one) for one in raw)
    if origin is dict:
        return {key: _build(inner[1], one) for key, one in raw.items()}
    if origin in (typing.Union, types.UnionType) or not isinstance(kind, type) or not issubclass(kind, StrEnum):
        return raw
    return kind(raw)


def _build_dataclass(kind: Any, raw: Any) -> Any:
    hints = typing.get_type_hints(kind)
    if not isinstance(raw, dict) or set(raw) - set(hints):
        raise ValueError(f"not a {kind.__name__}: {sorted(set(raw) - set(hints)) if raw else raw!r}")
    try:
        return kind(**{name: _build(hints[name], inner) for name, inner in raw.items()})
    except TypeError as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from error
