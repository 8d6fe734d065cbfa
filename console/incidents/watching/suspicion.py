"""What an incident says while nobody is named: before its first diagnosis, and after a verdict was taken back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from console.incidents.models import Certainty
from ingest.window import Window
from rca.findings import Symptom, SymptomKind

HEADLINE_CHARS_MAX: Final = 500
HEADLINES: Final = {
    SymptomKind.FAILURE: "Suspected hang",
    SymptomKind.STRAGGLER: "Suspected straggler",
    SymptomKind.IDLE: "Suspected idle job",
    SymptomKind.SILENCE: "Silence",
    SymptomKind.EXTERNAL: "Reported by hand",
}
UNDIAGNOSED: Final[Mapping[str, Any]] = {
    "certainty": Certainty.SUSPECTED, "component": "", "fault_kind": "", "grade": "", "culprits": [], "n_culprits": 0,
    "suspects": [], "n_suspects": 0, "root_caused_at": None,
}  # fmt: skip
"""The columns of an incident that has no verdict."""


def suspected_headline(window: Window, symptom: Symptom) -> str:
    name = communicator_name(window, symptom.comm_id)
    where = f" in communicator {name}" if name else ""
    return f"{HEADLINES[symptom.kind]}{where}: {symptom.sentence}"[:HEADLINE_CHARS_MAX]


def communicator_name(window: Window, comm_id: int) -> str:
    """The communicator's own name, else its id; empty when none stands out."""
    if not comm_id:
        return ""
    names = window.members["name"][window.members["comm_id"] == comm_id]
    return str(names[0]) if len(names) and names[0] else f"{comm_id:016x}"
