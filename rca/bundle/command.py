"""`python -m rca bundle FOLDER_OR_ZIP`: the diagnosis of dumps of a job that was never traced, offline.

Reads PyTorch Flight Recorder dumps (pickle, JSON), py-spy stacks (JSON, text) and NCCL RAS reports (JSON, text), whatever
they are called, as long as a dump's name ends with its rank. Exit status: 0 something or nothing found, 2 nothing that
can be read.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from rca.bundle.contents import Contents, read_contents
from rca.bundle.diagnosis import diagnose_bundle, dumped_in
from rca.bundle.evidence import DUMPS, SANDBOXED, WINDOW, evidence_at
from rca.bundle.unpack import BadBundle, Unpacked
from rca.dumps.dumped_view import ranks_of, views_of
from rca.findings import Diagnosis, to_json
from rca.plain import printable, window_hint
from rca.printed import text


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m rca bundle", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("path", type=Path, help="a folder or zip archive of dumps")
    parser.add_argument("--json", action="store_true", help="print the diagnosis as JSON")
    add_groups(parser)
    parser.add_argument(
        SANDBOXED, action="store_true", help="with limits on memory and processor time, telling progress"
    )
    chosen = parser.parse_args(arguments)
    if chosen.sandboxed:
        limit_resources()
    try:
        members = groups_of(chosen.group)
        contents = _contents(chosen.path, _tell if chosen.sandboxed else lambda share: None)
    except (BadBundle, ValueError) as error:
        print(printable(str(error)), file=sys.stderr)
        return 2
    except MemoryError:
        print(f"reading it takes more than {MEMORY_BYTES >> 30} GiB of memory", file=sys.stderr)
        return 2
    if contents.is_empty:
        said = "; ".join(f"{name}: {why}" for name, why in list(contents.refused.items())[:3])
        name = printable(str(chosen.path))
        told = f"{name} holds no dump that can be read{': ' + said if said else ''}."
        print(told + window_hint(chosen.path), file=sys.stderr)
        return 2
    dumped = dumped_in(contents)
    found = diagnose_bundle(dumped, printable(chosen.path.stem), members)
    if not chosen.json:
        print(_as_text(found))
    else:
        ranks = {"ranks": ranks_of(dumped)} if chosen.sandboxed else {}
        print(json.dumps({**_said(found), **views_of(dumped, members), **ranks}))
    return 0


MEMORY_BYTES: Final = 4 * 2**30
CPU_SECONDS: Final = 120
PROGRESS: Final = "progress "
TRACES: Final = "it holds the traces of an incident, which `python -m rca bundle` diagnoses where the evidence lies"
_GROUP_HELP = "who is in a process group whose dumps do not say so, as tp0=0,1,2 (may be given again)"


def limit_resources() -> None:
    """Let a bundle that asks for too much end this process, and nothing else."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _contents(path: Path, told: Callable[[float], None]) -> Contents:
    """Of an incident's evidence its newest dumps."""
    evidence = evidence_at(path)
    contents = read_contents(
        Unpacked(path) if evidence is None else Unpacked(evidence.path, evidence.root + DUMPS), told
    )
    if evidence is not None:
        contents.refused[WINDOW] = TRACES
    return contents


def _tell(share: float) -> None:
    print(f"{PROGRESS}{share:.3f}", file=sys.stderr, flush=True)


def add_groups(parser: argparse.ArgumentParser) -> None:
    """The option that names process groups' members."""
    parser.add_argument("--group", action="append", default=[], metavar="NAME=RANKS", help=_GROUP_HELP)


def groups_of(said: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Process group → ranks. Raises ValueError."""
    return dict(map(_group, said))


def _group(said: str) -> tuple[str, tuple[int, ...]]:
    name, _, ranks = said.partition("=")
    if not name or not all(one.isdigit() for one in ranks.split(",")):
        raise ValueError(f"--group {said}: expected a name, =, and ranks with commas between them")
    return name, tuple(int(one) for one in ranks.split(","))


def _said(found: Diagnosis) -> dict[str, Any]:
    return {"diagnosis": to_json(found), "agreement": list(found.agreement), "layer": found.layer}


def _as_text(found: Diagnosis) -> str:
    lines = [text(found, "Bundle"), f"Layer: {found.layer or 'cannot be told'}."]
    return "\n".join([*lines, *found.agreement])
