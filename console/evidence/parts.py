"""What goes into an evidence bundle, part by part: each writes files into the archive and says what it had to leave out.

A part that cannot be made (traces let go, a job too large for one window) is left out with the reason; the others still go in.
"""

from __future__ import annotations

import dataclasses
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from console.dumps.taken_away import put_dump
from console.dumps.wanted import requests_for
from console.evidence.chrome_trace import chrome_trace
from console.evidence.drawn import drawings
from console.evidence.post_mortem import post_mortem
from console.evidence.raster import NoPicture, png_of
from console.incidents.models import Incident
from console.incidents.pictures.evidence import newest_diagnosis
from console.incidents.pictures.export import incident_window, question_of, window_bytes
from console.incidents.read import read_review
from console.incidents.rows import incident_row, iso, timeline_row
from ingest.door.dumps import each_part
from nccl_instrument.dumps import Silent
from rca.bundle.silent import SILENT_FILE, silent_text

DUMP_BYTES_MAX: Final = 256 * 2**20
TIMELINE_MAX: Final = 20_000
REVISIONS_MAX: Final = 200
README: Final = """Evidence of incident {number}, taken by Diogenes {version} at {at}. Its diagnosis is made anew,
of the traces and the dumps, by `python -m rca bundle .` or `python -m rca bundle FILE.zip`.

| file | what it is | open it with |
|---|---|---|
| post-mortem.md | a draft of the post-mortem | any editor |
| incident.json, timeline.json | the incident as it stood; everything that happened to it | |
| diagnoses/N.json | every revision of its diagnosis | |
| window.npz | the traces the newest diagnosis rests on | `python -m rca window.npz` |
| trace.json | the same as tracks: a process per rank, ops and flows | https://ui.perfetto.dev or chrome://tracing |
| pictures/*.svg, *.png | topology, who waits for whom, flows, who stood still when | any browser |
| dumps/ | Python stacks and Flight Recorder dumps | |
| stacks.json, recorder.json | the same as the page shows them | |
| MANIFEST.json | every file with its size and SHA-256; what was left out, and why | |
"""


@dataclass
class Archive:
    """A zip file that keeps account: of each file its size and hash, of what is missing the reason."""

    zip: zipfile.ZipFile
    files: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def put(self, name: str, body: bytes | str) -> None:
        raw = body.encode() if isinstance(body, str) else body
        self.zip.writestr(name, raw)
        self.note(name, raw)

    def put_json(self, name: str, body: Any) -> None:
        self.put(name, json.dumps(body, ensure_ascii=False, indent=1))

    def note(self, name: str, raw: bytes) -> None:
        self.files.append({"name": name, "size_bytes": len(raw), "sha256": sha256(raw).hexdigest()})


Part = Callable[[Archive, Incident], None]


def put_incident(archive: Archive, incident: Incident) -> None:
    review = read_review(incident)
    archive.put_json(
        "incident.json",
        {"incident": dataclasses.asdict(incident_row(incident)), "team": incident.team.name,
         "review": review and dataclasses.asdict(review)},
    )  # fmt: skip
    entries = incident.timeline.order_by("-id")
    newest = [dataclasses.asdict(timeline_row(entry)) for entry in entries[:TIMELINE_MAX]]
    archive.put_json("timeline.json", newest[::-1])
    if (n := entries.count()) > TIMELINE_MAX:
        archive.left_out.append(f"timeline.json: {n - TIMELINE_MAX} older entries")


def put_diagnoses(archive: Archive, incident: Incident) -> None:
    revisions = incident.revisions.order_by("-number")
    for one in revisions[:REVISIONS_MAX]:
        archive.put_json(f"diagnoses/{one.number}.json", {"id": one.number, "at": iso(one.at), "diagnosis": one.body})
    if (n := revisions.count()) > REVISIONS_MAX:
        archive.left_out.append(f"diagnoses: {n - REVISIONS_MAX} older revisions")
    if not n:
        archive.left_out.append("diagnoses: there is none yet")


def put_post_mortem(archive: Archive, incident: Incident) -> None:
    archive.put("post-mortem.md", post_mortem(incident))


def put_window(archive: Archive, incident: Incident) -> None:
    """The window, and the same as tracks."""
    window = incident_window(incident)
    archive.put("window.npz", window_bytes(window, question_of(incident)))
    if not any(len(rows) for rows in window.tables.values()):
        archive.left_out.append("window.npz: it holds no traces: they are not stored any more, or never came")
    diagnosis = newest_diagnosis(incident)
    marks = [("first symptom", incident.first_symptom_ns), ("trigger", incident.triggered_ns)]
    began_ns = diagnosis.findings[0].began_ns if diagnosis and diagnosis.findings else 0
    trace = chrome_trace(window, diagnosis, [*marks, *([("fault began", began_ns)] if began_ns else [])])
    archive.put("trace.json", json.dumps(trace, ensure_ascii=False, separators=(",", ":")))
    archive.left_out += [f"trace.json: {n:,} {what}" for what, n in trace["otherData"]["left_out"].items()]


def put_pictures(archive: Archive, incident: Incident) -> None:
    """Each as SVG, and as PNG for places that show no SVG."""
    for one in drawings(incident):
        if not one.svg:
            archive.left_out.append(f"pictures/{one.name}: {one.why}")
            continue
        archive.put(f"pictures/{one.name}.svg", one.svg)
        try:
            archive.put(f"pictures/{one.name}.png", png_of(one.svg))
        except NoPicture as error:
            archive.left_out.append(f"pictures/{one.name}.png: {error}")
        if one.left_out:
            archive.left_out.append(f"pictures/{one.name}: {one.left_out} are not drawn; window.npz has them")


def put_dumps(archive: Archive, incident: Incident) -> None:
    """Every dump of every request of the incident, newest request first, and what the page made of the newest."""
    requests, left, silent, n_left = requests_for(incident), DUMP_BYTES_MAX, [], 0
    if not requests:
        archive.left_out.append("dumps: nobody was asked for any, or they are not kept any more")
    for request in requests:
        folder = "dumps/" if request == requests[0] else f"dumps-{request.pk}/"
        for part in each_part(request.pk):
            why = part.silent or put_dump(archive.zip, part, left, folder, archive.note)
            if not why:
                left -= part.length
                continue
            n_left += not part.silent
            if request == requests[0]:
                silent.append(Silent(part.rank, part.node, part.kind, why))
    if silent:
        archive.put(f"dumps/{SILENT_FILE}", silent_text(silent))
    if n_left:
        archive.left_out.append(
            f"dumps: {n_left:,} that had no room in {DUMP_BYTES_MAX >> 20} MiB or could not be read"
        )
    summary = next((one.summary for one in requests if hasattr(one, "summary")), None)
    for name in ("stacks", "recorder"):
        if (body := getattr(summary, name, None)) is not None:
            archive.put_json(f"{name}.json", body)


PARTS: Final[tuple[tuple[str, float, Part], ...]] = (
    ("incident and timeline", 0.05, put_incident),
    ("diagnoses", 0.05, put_diagnoses),
    ("post-mortem draft", 0.05, put_post_mortem),
    ("traces", 0.4, put_window),
    ("pictures", 0.2, put_pictures),
    ("stacks and dumps", 0.25, put_dumps),
)
"""Name, share of the time it usually takes, and who writes it; in the order of the file."""
