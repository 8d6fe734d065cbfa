"""Live messages: the typed payloads a browser receives, and the rows they carry.

A page starts from a REST snapshot that names its stream's epoch and offset, then applies messages in offset order; a
gap or another epoch means "fetch the snapshot again". Rows in messages and rows in snapshots are these same
dataclasses, so that snapshot + messages = snapshot can be tested. Plain Python: the browser's TypeScript mirrors this
file, and golden transcripts are replayed by both.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Final, Literal

PROTOCOL: Final = 1

MessageType = Literal[
    "incident.opened", "incident.changed", "timeline.appended", "job.changed", "ingest.changed", "dumps"
]
IncidentState = Literal["open", "acknowledged", "resolved"]
ConditionState = Literal["firing", "clearing", "clear"]
Certainty = Literal["suspected", "diagnosed"]
Severity = Literal["low", "medium", "high"]
JobState = Literal["running", "stuck", "slow", "silent", "catching_up", "idle", "ended", "unknown"]


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """An incident as lists and headers show it. Times are ISO 8601 UTC strings, None when it has not happened.

    version: raised by every change; sent back as a precondition. suspected: no diagnosis yet. culprits: at most 16 ranks,
    n_culprits in all; suspects, n_suspects: these and, of a tie, who cannot be told from them. regressed: reopened soon
    after it was resolved. recurrence_of: number of an earlier incident of the same key.

    acknowledged_until: when the acknowledgement ends by itself. severity: of the worst symptom seen. assignee: who should
    handle it, "" nobody. nodes: of the suspects, at most 16. silence: number of what silences it until silenced_until.
    attached_to: number of the incident it follows from; n_attached: how many follow from it. review: what was found out
    afterwards: real, noise, false, or "".
    """

    number: int
    version: int
    job_id: int
    job: str
    attempt: int
    symptom: str
    state: IncidentState
    condition: ConditionState
    certainty: Certainty
    headline: str
    component: str
    fault_kind: str
    grade: str
    culprits: tuple[int, ...]
    n_culprits: int
    suspects: tuple[int, ...]
    n_suspects: int
    n_victims: int
    opened_at: str
    first_symptom_at: str
    triggered_at: str
    root_caused_at: str | None
    acknowledged_at: str | None
    acknowledged_by: str | None
    resolved_at: str | None
    resolution: str | None
    regressed: bool
    recurrence_of: int | None
    updated_at: str
    acknowledged_until: str | None
    severity: Severity
    assignee: str
    nodes: tuple[str, ...]
    silence: int | None
    silenced_until: str | None
    attached_to: int | None
    n_attached: int
    review: str


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One entry of an incident's append-only timeline. actor_kind: user, detector, api or ticket."""

    id: int
    incident: int
    at: str
    actor: str
    actor_kind: str
    verb: str
    before: str
    after: str
    note: str


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as the Now page shows it. n_ranks: on nodes that report. op_interval_ms is None while no normal is known."""

    id: int
    name: str
    team: str
    attempt: int
    state: JobState
    n_ranks: int
    world_size: int
    n_nodes: int
    nodes_reporting: int
    last_data_at: str | None
    ops_per_s: float | None
    op_interval_ms: float | None
    looked_at: str | None
    incident: int | None


@dataclass(frozen=True, slots=True)
class IngestRow:
    """How ingest is doing, as the Now page shows it. `store` names the active trace store; disk: ok, short, unknown;
    disk_says: what is wrong with it and what to do.

    processes, batches_per_s: None when nobody can say. requests_refused: by status, since the processes that live began.
    losses: by kind, of what may be missing from windows. strays: batches of attempts that another displaced.
    nodes_unheard: not heard for a reason of ours (ingest is away, or refuses for want of disk), so not silent.
    counted_since: since when refused requests are counted; None while no process counts.
    """

    store: str
    disk: str
    disk_says: str
    processes: int | None
    batches_per_s: float | None
    nodes_reporting: int
    nodes_silent: int
    nodes_catching_up: int
    nodes_unheard: int
    rows_dropped: int
    batches_refused: int
    requests_refused: dict[str, int]
    losses: dict[str, int]
    strays: int
    counted_since: str | None


@dataclass(frozen=True, slots=True)
class DumpsRow:
    """How many of the nodes asked for an incident's dumps have answered, and of how many ranks something was taken."""

    incident: int
    request: int
    nodes_answered: int
    nodes_expected: int
    ranks_answered: int


Row = IncidentRow | TimelineRow | JobRow | IngestRow | DumpsRow
ROW_OF: Final[dict[str, type[Row]]] = {
    "incident.opened": IncidentRow,
    "incident.changed": IncidentRow,
    "timeline.appended": TimelineRow,
    "job.changed": JobRow,
    "ingest.changed": IngestRow,
    "dumps": DumpsRow,
}


@dataclass(frozen=True, slots=True)
class LiveMessage:
    """One message of a stream. stream: "team:<id>" (lists, jobs) or "incident:<number>". at: ISO 8601 UTC."""

    stream: str
    epoch: str
    offset: int
    at: str
    type: MessageType
    row: Row


def encode_message(message: LiveMessage) -> str:
    """The message as the JSON text a browser gets."""
    return json.dumps({"v": PROTOCOL, **dataclasses.asdict(message)}, separators=(",", ":"))


def decode_message(text: str) -> LiveMessage:
    """The message in `text`. ValueError on another protocol version, unknown types, and unknown or missing fields."""
    raw = json.loads(text)
    if not isinstance(raw, dict) or raw.pop("v", None) != PROTOCOL:
        raise ValueError("not a live message of this protocol version")
    if raw.get("type") not in ROW_OF:
        raise ValueError(f"unknown live message type {raw.get('type')!r}")
    row = _strict(ROW_OF[raw["type"]], raw.pop("row", None))
    message: LiveMessage = _strict(LiveMessage, {**raw, "row": row})
    return message


def _strict(kind: type[Any], raw: Any) -> Any:
    names = {field.name for field in dataclasses.fields(kind)}
    if not isinstance(raw, dict) or set(raw) != names:
        raise ValueError(f"not a {kind.__name__}: fields {sorted(names ^ set(raw or ()))}")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()})
