"""Accuracy suite `localization`: hundreds of simulated jobs of 64 to 10,000 GPUs, half of them with a fault of each kind.

Every job's batches go through the functions by which the console looks at a live job (tests/eval/watching.py); the first
diagnosis and the one 30 s of data later count, and what either has wrong is wrong. Each case is kept as a line of a file, so
that a run that was interrupted goes on. Run by `make eval SUITE=localization [SEED=n]`; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from nccl_instrument.simulate.bar import Bar
from tests.eval.localization_cases import CASES_AT, Plan, draw_case, planned, with_kernels
from tests.eval.localization_report import is_miss, summary, table, told
from tests.eval.localization_run import run_case
from tests.eval.localization_server import run_through
from tests.eval.localization_shared import in_blocks, run_block, shares
from tests.eval.parallel import in_parallel
from tests.eval.stack import ROOT, RunningStack

Row = dict[str, Any]
INTERRUPTED: Final = 130
CODE: Final = ("rca", "ingest", "nccl_instrument", "console/incidents/watching", "tests/eval", "tests/replay.py")


def main() -> int:
    chosen = parser().parse_args()
    plans = plans_of(chosen)
    if chosen.through_server:
        return compare(chosen.seed, [plan for plan in plans if plan[2] != "healthy"][: chosen.through_server])
    more = ("-kernels" if chosen.kernels else "") + ("-odd" if chosen.odd else "")
    name = f"localization-{chosen.seed}{more}.jsonl"
    kept = chosen.results or ROOT / "var" / "eval" / name
    known = {} if chosen.only else read_results(kept, code_version())
    todo = [plan for plan in plans if plan[:2] not in known]
    print(
        f"localization: {len(plans)} cases, {len(plans) - len(todo)} known from {kept}, seed {chosen.seed}", flush=True
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run_all(chosen, todo, kept, rows := dict(known))
    except KeyboardInterrupt:
        print(
            f"\nInterrupted: {len(todo)} cases were to be run. The same command goes on with what is left.", flush=True
        )
    wanted = [rows[plan[:2]] for plan in plans if plan[:2] in rows]
    print(table(wanted))
    print(json.dumps({**summary(wanted, chosen.seed, overridden=[]), "planned": len(plans), "run": len(wanted)}))
    return 0 if len(wanted) == len(plans) else INTERRUPTED


def compare(seed: int, plans: Sequence[Plan]) -> int:
    """Runs these cases both ways and says where the answers differ."""
    rows, n_alike = [], 0
    with RunningStack() as stack:
        overridden = stack.settings_overridden()
        for gpus, number, row, fault in plans:
            case = draw_case(seed, gpus, number, row, fault)
            served, plain = run_through(stack, case), run_case(case)
            rows.append(served)
            is_alike = all(served[key] == plain[key] for key in ("named", "component_right", "wrongly_blamed"))
            n_alike += is_alike
            print(f"{fault} at {gpus} GPUs: {'the same score' if is_alike else 'ANOTHER SCORE'}", flush=True)
            print(f"    server: {served['said']}\n    without: {plain['said']}", flush=True)
    print(table(rows))
    print(json.dumps({**summary(rows, seed, overridden), "through_server": len(rows), "same_score": n_alike}))
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seed", type=int, default=os.environ.get("SEED") or random.randrange(10**6))
    made.add_argument("--sizes", default=",".join(map(str, CASES_AT)), help="numbers of GPUs")
    made.add_argument("--cases", type=int, help="faulty cases at each size, and as many healthy ones")
    made.add_argument("--faults", default="", help="of these faults (or rows of the fault table) only")
    made.add_argument("--only", type=int, action="append", help="the case of this number; may be given again")
    made.add_argument("--kernels", action="store_true", help="the plugin has NCCL report kernels (DIOGENES_KERNELS)")
    made.add_argument("--odd", action="store_true", help="jobs of other shapes: TP 1 to 4, nodes of 2 to 16 GPUs")
    made.add_argument("--windows", type=Path, help="folder for the window of each case's newest diagnosis")
    made.add_argument("--results", type=Path, help="file to keep cases in, and to go on from")
    made.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="cases at a time")
    made.add_argument(
        "--through-server", type=int, default=0, help="so many cases through a running stack, and compare"
    )
    return made


def plans_of(chosen: argparse.Namespace) -> list[Plan]:
    """What is to be run, size by size."""
    faults = tuple(filter(None, chosen.faults.split(",")))
    sizes = [int(size) for size in chosen.sizes.split(",")]
    found = [
        (gpus, *one)
        for gpus in sizes
        for one in planned(gpus, chosen.cases or CASES_AT.get(gpus, 64), faults, is_odd=chosen.odd)
    ]
    return [plan for plan in found if not chosen.only or plan[1] in chosen.only]


def run_all(chosen: argparse.Namespace, plans: Sequence[Plan], kept: Path, rows: dict[tuple[int, int], Row]) -> None:
    """Runs every case; keeps each one, in the file and in `rows`, as soon as it is known."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    bar, version, n_known = Bar(len(plans), "cases"), code_version(), len(rows)

    def tell(share: float) -> None:
        bar.tell(len(rows) - n_known + share)

    run = partial(run_plan, chosen.seed, kernels=chosen.kernels, is_odd=chosen.odd, windows=chosen.windows)
    shared = [plan for plan in plans if shares(plan) and not (chosen.odd or chosen.kernels)]
    apart = in_parallel(
        run if chosen.jobs > 1 else partial(run, tell=tell), [plan for plan in plans if plan not in shared], chosen.jobs
    )
    for found in chain(_of_blocks(chosen, shared, tell), apart):
        rows[found["gpus"], found["number"]] = found
        bar.tell(len(rows) - n_known, f"{found['fault']} at {found['gpus']}")
        with kept.open("a") as file:
            file.write(json.dumps({"code": version, **found}) + "\n")
        if chosen.only or is_miss(found):
            print("\n".join(told(found)), flush=True)
    bar.end()


def _of_blocks(chosen: argparse.Namespace, plans: Sequence[Plan], tell: Callable[[float], None]) -> Iterator[Row]:
    """The rows of the cases that share jobs."""
    for block in in_blocks(plans):
        yield from run_block(chosen.seed, block, chosen.jobs, chosen.windows, tell)


def run_plan(
    seed: int,
    plan: Plan,
    kernels: bool,
    is_odd: bool,
    windows: Path | None,
    tell: Callable[[float], None] = lambda share: None,
) -> Row:
    """Draws the case and runs it."""
    gpus, number, row, fault = plan
    case = draw_case(seed, gpus, number, row, fault, is_odd=is_odd)
    return run_case(with_kernels(case) if kernels else case, tell, windows)


def read_results(kept: Path, version: str) -> dict[tuple[int, int], Row]:
    """Cases that this very code has run before; what other code found says nothing about it."""
    if not kept.exists():
        return {}
    rows = [json.loads(line) for line in kept.read_text().splitlines() if line.endswith("}")]
    return {(row["gpus"], row["number"]): row for row in rows if row.pop("code") == version}


def code_version() -> str:
    """A digest of the sources that decide a case's result."""
    digest = hashlib.sha256()
    for name in CODE:
        for path in sorted((ROOT / name).rglob("*")) or [ROOT / name]:
            if path.suffix in (".py", ".c", ".h"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
