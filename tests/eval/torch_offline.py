"""Hangs of real PyTorch jobs, dumped and diagnosed without a stack: what the sources say, one by one and fused.

`python -m tests.eval.torch_offline [--faults a,b] [--repeats 3] [--seed n] [--ranks 16 --tp 4] [--keep FOLDER]`; takes
the dumps as the agent does and reads them as a bundle is read. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nccl_instrument.dumps import Dumps
from rca.findings import to_json
from tests.eval.torch_cases import CULPRITS, TorchCase, draw_case
from tests.eval.torch_dumps import diagnosis_of, keep, kept, look_at
from tests.eval.torch_job import TorchFailed, TorchJob
from tests.eval.torch_scoring import TorchScore, score_torch

HANG_SECONDS: Final = 4.0
APART_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said of one case."""

    case: TorchCase
    score: TorchScore
    verdict: str
    agreement: tuple[str, ...]
    layer: str


def run(case: TorchCase) -> list[Dumps]:
    """Train, put the fault in, wait until everybody stands, dump twice."""
    with (
        tempfile.TemporaryDirectory(prefix="diogenes-torch-") as folder,
        TorchJob(case, Path(folder), "offline") as job,
    ):
        job.inject()
        time.sleep(HANG_SECONDS)
        bodies = _looks(job, 1)
        time.sleep(APART_SECONDS)
        return bodies + _looks(job, 2)


def _looks(job: TorchJob, look: int) -> list[Dumps]:
    return [look_at(node, job.trainers_of(node), job.segments / node, look) for node in job.nodes]


def answer(case: TorchCase, bodies: Sequence[Dumps]) -> Answer:
    found = diagnosis_of(bodies)
    return Answer(case, score_torch(case, to_json(found)), found.verdict, found.agreement, found.layer)


def describe(number: int, n_cases: int, answer: Answer) -> str:
    score = answer.score
    marks = ("named" if score.named else "NOT NAMED", "layer" if score.layer_right else f"LAYER {answer.layer!r}")
    blamed = f", {score.wrongly_blamed} BLAMED WRONGLY" if score.wrongly_blamed else ""
    return f"[{number}/{n_cases}] {answer.case.said}: {', '.join(marks)}{blamed}: {answer.verdict} {answer.agreement}"


def summary(answers: Sequence[Answer], seed: int, failed: int) -> Mapping[str, Any]:
    return {
        "suite": "torch_offline", "seed": seed, "cases": len(answers), "failed": failed,
        "named": sum(one.score.named for one in answers),
        "layer_right": sum(one.score.layer_right for one in answers),
        "wrongly_blamed": sum(one.score.wrongly_blamed for one in answers),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--faults", default=",".join(CULPRITS))
    parser.add_argument("--ranks", type=int, default=0, help="with --tp, instead of a drawn layout")
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="folder for the dumps of each case")
    parser.add_argument("--again", action="store_true", help="diagnose what is kept there, and run nothing")
    chosen = parser.parse_args()
    layout = (chosen.ranks, chosen.tp) if chosen.ranks else None
    cases = [
        draw_case(fault, chosen.seed + k, layout) for k in range(chosen.repeats) for fault in chosen.faults.split(",")
    ]
    answers, failed = [], 0
    for number, case in enumerate(cases, 1):
        path = chosen.keep / f"{case.fault}-{case.n_ranks}-{case.tp}-{case.seed}.tar.xz" if chosen.keep else None
        try:
            bodies = kept(path) if path is not None and chosen.again else run(case)
        except (TorchFailed, FileNotFoundError) as error:
            failed += 1
            print(f"[{number}/{len(cases)}] {case.said}: NOT RUN: {error}", flush=True)
            continue
        if path is not None and not chosen.again:
            keep(bodies, path)
        answers.append(answer(case, bodies))
        print(describe(number, len(cases), answers[-1]), flush=True)
    print(json.dumps(summary(answers, chosen.seed, failed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
