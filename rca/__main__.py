"""`python -m rca window.npz`: the diagnosis of a saved window, on any machine that has numpy.

Looks for symptoms as the live system does and prints what the rules make of each. --json prints the same as JSON. Exit
status: 0 something or nothing found, 2 the file is not a window.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ingest.window import BadWindow, Window, load_window
from rca.diagnose import diagnose
from rca.findings import Diagnosis, Symptom, SymptomKind, to_json
from rca.normal import Normal
from rca.settings import DEFAULT
from rca.triggers import look


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m rca", description=__doc__.split("\n", 1)[0])
    parser.add_argument("window", type=Path, help="a window saved by the console or by ingest.window.save_window")
    parser.add_argument("--json", action="store_true", help="print symptoms and diagnoses as JSON")
    parser.add_argument("--anyway", action="store_true", help="run the rules even when no trigger fires")
    chosen = parser.parse_args(arguments)
    try:
        window = load_window(chosen.window)
    except BadWindow as error:
        print(error, file=sys.stderr)
        return 2
    seen = look(window, Normal(), DEFAULT)
    symptoms = seen.symptoms or ((_asked(window),) if chosen.anyway else ())
    diagnoses = [diagnose(window, symptom, DEFAULT) for symptom in symptoms]
    if chosen.json:
        print(json.dumps({"diagnoses": [to_json(one) for one in diagnoses], "held": seen.held}, indent=2))
    else:
        print("\n\n".join(text(one) for one in diagnoses) or f"Nothing is wrong that a trigger would see. {seen.held}")
    return 0


def _asked(window: Window) -> Symptom:
    return Symptom(
        SymptomKind.EXTERNAL, window.job, window.attempt, window.start_ns, window.now_ns, 0, (), "Asked for by hand."
    )


def text(diagnosis: Diagnosis) -> str:
    """The diagnosis as lines for a terminal."""
    symptom = diagnosis.symptom
    lines = [f"{symptom.kind}: {symptom.sentence}", diagnosis.verdict]
    for number, finding in enumerate(diagnosis.findings, 1):
        lines.append(
            f"  {number}. {finding.subject.name}: {finding.component} / {finding.kind}, {finding.grade}, "
            f"score {finding.score:.2f} ({finding.rule} v{finding.version})"
        )
        lines += [f"     {finding.sentence}"] if number > 1 else []
        lines += [f"     - {fact.what}: {fact.value} {fact.unit}".rstrip() for fact in finding.evidence]
        lines += [f"     could also be: {tied.kind} {tied.name}" for tied in finding.tied]
        lines += [f"     next: {finding.advice}"] if finding.advice else []
    if diagnosis.victims:
        lines.append(f"Only waiting: {', '.join(map(str, diagnosis.victims[:32]))}")
    lines += [f"  {edge.waiter} waits for {edge.waits_for}: {edge.why}" for edge in diagnosis.path[:16]]
    lines += [f"Not seen: {sentence}" for sentence in diagnosis.missing]
    lines += [f"Graded down: {sentence}" for sentence in diagnosis.downgraded]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
