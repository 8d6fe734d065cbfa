"""`python -m rca stages FILE…`: what stages say of a TraceML final_summary.json, or of profiler traces of several ranks."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rca.frontier.imported import BadImport, Imported, read_imported
from rca.frontier.labels import label
from rca.frontier.packet import report_json
from rca.frontier.report import Report
from rca.frontier.words import MEANING, short


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status: 0 labelled, 2 the files cannot be read."""
    chosen = _parser().parse_args(arguments)
    try:
        imported = read_imported(chosen.files)
        report = label(imported.window)
    except (BadImport, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if chosen.json:
        print(json.dumps({"source": imported.source, "told": imported.told, "report": report_json(report)}, indent=2))
    else:
        print(text(imported, report))
    return 0


def text(imported: Imported, report: Report) -> str:
    """The report for a terminal."""
    steps, ranks = report.n_steps, report.n_ranks
    lines = [
        f"{imported.source}: {steps} {'step' if steps == 1 else 'steps'} of {ranks} {'rank' if ranks == 1 else 'ranks'},"
    ]
    lines[0] += f" {report.step_s * 1e3:.1f} ms of exposed time each."
    lines += [
        f"  {short(stage):12} {share:6.1%} of the exposed time, gain {report.gains[stage]:6.1%}"
        for stage, share in sorted(report.shares.items(), key=lambda pair: -pair[1])
    ]
    if report.routing:
        lines.append(f"Look at {', '.join(short(stage) for stage in report.routing)}, in this order.")
    if report.leader is not None:
        lines.append(
            f"Rank {report.leader} leads {short(report.stage)}, {report.lead_s * 1e3:.1f} ms before the second."
        )
    lines += [f"{one.value}: {MEANING[one]}" for one in report.labels]
    lines += [f"Not stronger, because: {why}" for why in report.downgrades]
    return "\n".join([*lines, *imported.told])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rca stages", description=(__doc__ or "").split(": ", 1)[1])
    parser.add_argument("files", type=Path, nargs="+", help="final_summary.json, or trace.json[.gz] of each rank")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser
