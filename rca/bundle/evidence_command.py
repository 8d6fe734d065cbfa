"""`python -m rca bundle EVIDENCE`: the diagnosis of an incident's evidence, as the console gives it away, made anew offline.

What its window of traces says, joined with its dumps as in the console, where those are part of the diagnosis in it. Exit status
as of `python -m rca window.npz`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from ingest.window import Window
from rca.bundle.command import add_groups, groups_of
from rca.bundle.contents import Contents, read_contents
from rca.bundle.diagnosis import dumped_in
from rca.bundle.evidence import DUMPS, Evidence, evidence_at, has_joined_dumps, window_of
from rca.bundle.unpack import BadBundle, Unpacked
from rca.dumps.dumped import with_dumps
from rca.findings import Diagnosis
from rca.plain import printable
from rca.saved_window import make_parser, tell
from rca.settings import Settings

APART: Final = "Its dumps are not part of this: the newest diagnosis in the evidence does not rest on them, either."
Groups = Mapping[str, tuple[int, ...]]


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    options = make_parser("python -m rca bundle")
    add_groups(options)
    chosen = options.parse_args(arguments)
    try:
        evidence = evidence_at(chosen.window)
        if evidence is None:
            raise BadBundle(f"{chosen.window} is no evidence of an incident")
        groups = groups_of(chosen.group)
        contents = read_contents(Unpacked(evidence.path, evidence.root + DUMPS))
        with window_of(evidence) as chosen.window:
            return tell(chosen, partial(_joined, evidence, contents, groups))
    except (BadBundle, ValueError) as error:
        print(printable(str(error)), file=sys.stderr)
        return 2


def _joined(
    evidence: Evidence, contents: Contents, groups: Groups, diagnosis: Diagnosis, window: Window, settings: Settings
) -> Diagnosis:
    if contents.is_empty:
        return diagnosis
    if not has_joined_dumps(evidence):
        return replace(diagnosis, missing=(*diagnosis.missing, APART))
    has_traces = bool(len(window.members))
    return with_dumps(diagnosis, dumped_in(contents), settings, has_traces=has_traces, members=groups)
