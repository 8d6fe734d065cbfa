"""The command `python -m rca window.npz`: the diagnosis of a saved window, offline.

Diagnoses what the file says it was diagnosed for, else the symptoms that the live system would see, and prints what
the rules make of each; --why-not RANK adds why that rank was not blamed. --json prints the same as JSON. Exit status: 0
something or nothing found, 2 the file cannot be diagnosed, or there is no such RANK.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ingest.door.impossible import RANKS_MAX, impossible_rows
from ingest.traces.saved import BYTES_MAX
from ingest.window import BadWindow, Window, load_question
from rca.bundle.evidence import evidence_at
from rca.diagnose import diagnose
from rca.findings import Diagnosis, Symptom, SymptomKind, symptom_from_json, to_json
from rca.printed import alternative_lines, text
from rca.settings import DEFAULT, Settings, limits, settings_with
from rca.triggers.look import look
from rca.triggers.normal import Normal
from rca.why_not import why_not

GIB = 2**30
EVER_NS = 2**62  # what is late in it is not asked: the clock of whoever saved it is not known
Join = Callable[[Diagnosis, Window, Settings], Diagnosis]
NOTHING = "Nothing is wrong that a trigger would see; --anyway looks for a hang or a slowdown all the same."


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    return tell(make_parser().parse_args(arguments))


def tell(chosen: argparse.Namespace, join: Join = lambda diagnosis, window, settings: diagnosis) -> int:
    """Diagnose what was chosen and print it; returns the exit status. join: puts to a diagnosis what else is known."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names come from a file that nobody vouches for
    try:
        window, question = _loaded(chosen.window, int(chosen.max_gib * GIB))
        symptoms, settings = _asked_for(chosen.window, question)
        _check_rank(chosen.window, window, chosen.why_not)
    except BadWindow as error:
        print(_evidence_words(chosen.window) or error, file=sys.stderr)
        return 2
    if unknown := sorted(set(question.get("thresholds", {})) - set(DEFAULT.thresholds())):
        print(f"{chosen.window}: thresholds unknown here are left out: {ascii(unknown)[1:-1][:300]}.", file=sys.stderr)
    seen = look(window, Normal(), settings)
    is_asked = chosen.anyway or chosen.why_not is not None
    symptoms = symptoms or seen.symptoms or ((_asked(window),) if is_asked else ())
    diagnoses = [join(diagnose(window, symptom, settings), window, settings) for symptom in symptoms]
    ranks = [chosen.why_not] if chosen.why_not is not None else []
    others = [[why_not(window, one.symptom, one, rank, settings) for rank in ranks] for one in diagnoses]
    if chosen.json:
        told = [[to_json(other) for other in row] for row in others]
        print(
            json.dumps({"diagnoses": [to_json(one) for one in diagnoses], "held": seen.held, "why_not": told}, indent=2)
        )
    else:
        parts = [
            "\n".join([text(one), *(line for other in row for line in alternative_lines(other))])
            for one, row in zip(diagnoses, others, strict=True)
        ]
        print("\n\n".join(parts) or f"{NOTHING} {seen.held}".rstrip())
    return 0


_OTHERS = (
    "Instead of a window: `python -m rca bundle FOLDER_OR_ZIP` diagnoses stacks and Flight Recorder dumps of a job that "
    "was never traced, or an incident's evidence as the console gives it away; "
    "`python -m rca stages FILE…` says which stage of the step and which rank hold it up. "
    "Each has its own --help."
)


def make_parser(prog: str = "python -m rca") -> argparse.ArgumentParser:
    """Of this command, and of others that diagnose a window."""
    parser = argparse.ArgumentParser(prog=prog, description=(__doc__ or "").split("\n", 1)[0])
    parser.epilog = _OTHERS
    parser.add_argument("window", type=Path, help="a window saved by the console or by ingest.window.save_window")
    parser.add_argument("--json", action="store_true", help="print symptoms and diagnoses as JSON")
    parser.add_argument("--anyway", action="store_true", help="run the rules even when no trigger fires")
    parser.add_argument("--why-not", type=_rank, metavar="RANK", help="say why this rank is not blamed")
    help_ = "memory the window may take; a larger one is refused unread (%(default)g)"
    parser.add_argument("--max-gib", type=_gib, default=BYTES_MAX / GIB, metavar="GIB", help=help_)
    return parser


def _rank(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < RANKS_MAX):
        raise argparse.ArgumentTypeError(f"a rank is a number from 0 to {RANKS_MAX - 1}, not {text!a:.40}")
    return int(text)


def _gib(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (found := float(text)) < 2**20:
            return found
    raise argparse.ArgumentTypeError(f"it must be a number more than 0 and less than a million, not {text!a:.40}")


def _check_rank(path: Path, window: Window, rank: int | None) -> None:
    """BadWindow for a rank that the job does not have; of one that only sent nothing, that is the answer."""
    if rank is None:
        return
    if window.world_size and rank >= window.world_size:
        raise BadWindow(
            f"{path}: --why-not {rank}: there is no such rank, the job has ranks 0 to {window.world_size - 1}."
        )
    if not window.world_size and rank not in window.ranks["rank"] and rank not in window.members["rank"]:
        raise BadWindow(f"{path}: --why-not {rank}: nothing in this window mentions such a rank.")


def _evidence_words(path: Path) -> str:
    """Which command is for an incident's evidence; "" where it is none."""
    if evidence_at(path) is None:
        return ""
    return f"{path} is an incident's evidence, not a saved window: `python -m rca bundle {path}` diagnoses it."


def _loaded(path: Path, bytes_max: int) -> tuple[Window, dict[str, Any]]:
    """The window and what it was diagnosed for. BadWindow also for one from which nobody can be told from anybody, and for one
    with rows that ingest would have refused."""
    window, question = load_question(path, bytes_max)
    for table, rows in window.tables.items():
        if n := int(impossible_rows(table, rows, EVER_NS).sum()):
            raise BadWindow(f"{path}: {n} rows of its table {table} cannot be true.")
    if (window.ranks["rank"] >= RANKS_MAX).any() or (window.members["rank"] >= RANKS_MAX).any():
        raise BadWindow(f"{path}: it has a rank beyond {RANKS_MAX - 1}.")
    known = np.unique(np.concatenate([window.ranks["rank"], window.members["rank"]]))
    n_ranks = int((known >= 0).sum())
    if n_ranks < 2:
        said = "one rank" if n_ranks else "no rank"
        raise BadWindow(f"{path} holds {said}: who waits for whom cannot be told from it.")
    return window, question


def _asked_for(path: Path, question: dict[str, Any]) -> tuple[tuple[Symptom, ...], Settings]:
    """The symptom the window was diagnosed for and the thresholds of then, where the file says so. BadWindow."""
    if not question:
        return (), DEFAULT
    try:
        symptom = symptom_from_json(question["symptom"])
        thresholds = question.get("thresholds", {})
        settings = settings_with({name: value for name, value in thresholds.items() if name in limits()})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadWindow(f"{path}: what it was diagnosed for cannot be read ({type(error).__name__}).") from error
    if not all(type(one) is int and abs(one) < 2**62 for one in (symptom.at_ns, symptom.seen_ns, *symptom.ranks)):
        raise BadWindow(f"{path}: its symptom has no time.")
    words, numbers = (symptom.job, symptom.sentence), (symptom.attempt, symptom.comm_id, *symptom.numbers.values())
    if not all(type(one) is str for one in words) or not all(_is_number(one) for one in numbers):
        raise BadWindow(f"{path}: its symptom says what no symptom does.")
    return (symptom,), settings


def _is_number(value: object) -> bool:
    """Whether arithmetic can be done with it: JSON's numbers may be as long as anybody likes."""
    return type(value) is float or (type(value) is int and abs(value) < 2**64)


def _asked(window: Window) -> Symptom:
    return Symptom(
        SymptomKind.EXTERNAL, window.job, window.attempt, window.start_ns, window.now_ns, 0, (), "Asked for by hand."
    )
