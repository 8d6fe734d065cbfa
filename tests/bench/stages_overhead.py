"""E1: what recording stages costs live ranks, in blocks inside one job: not recorded, recorded, with device times, not again.

`python -m tests.bench.stages_overhead [BLOCKS]`. DDP over gloo on this machine; for each number of ranks and each way out
(the ring that the agent reads; the gather over a group of its own) so many blocks of turns in an order that goes round. The
interval is of whole blocks drawn again (paired.py). The paper asks for an upper bound of 95 % below 3 % for the host's clock
and below 1 % for what device times add to it.

What two turns that are both not recorded differ by is the machine's doing. Where that alone is as much as is to be shown
to be less, the figures do not count, and neither pass nor fail.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.bench.paired import slowdown_pct
from tests.eval.stages_job import JobFailed, run_job

RANKS: Final = (2, 4, 8)
BLOCKS: Final = 40
STEPS: Final = 5
"""Of a turn: short ones, so that what others do on the machine falls on all of a block or spoils that block alone."""
BASE_MS: Final = 60.0
ROADS: Final = {"agent": ("--road", "agent"), "gather": ("--road", "gather", "--gather-steps", str(STEPS))}
"""A gather in every turn is 24 times as many as there are by default: the median block has some."""
EVENTS: Final = ("--event-share", "0.1")
GATES: Final = {"wall": 3.0, "events": 1.0}
"""Per cent (E1): of the host's clock against nothing, of device times against the host's clock."""
OFF, WALL, WITH_EVENTS, OFF_AGAIN = range(4)
Found = dict[str, Any]


def main(blocks: int) -> None:
    found = overhead(blocks, lambda _, what: print(what, flush=True))
    print(json.dumps({"bench": "stages_overhead", "cores": os.cpu_count(), "blocks": blocks, **found}))


def overhead(blocks: int, tell: Callable[[float, str], None]) -> Found:
    """Roads → ranks → figures; how many count and hold; and what else the machine was doing."""
    rows, load_before = list[Found](), os.getloadavg()[0]
    with _others() as others:
        for road, options in ROADS.items():
            for n_ranks in RANKS:
                rows.append({"road": road, "ranks": n_ranks, **_measured(n_ranks, blocks, (*options, *EVENTS))})
                tell(len(rows) / (len(ROADS) * len(RANKS)), said(rows[-1]))
    told = {gate: [row[gate] for row in rows if gate in row] for gate in GATES}
    return {
        "e1": rows, "e1_load": [round(load_before, 1), round(os.getloadavg()[0], 1)], "e1_others_cpu_pct": others[0],
        **{f"e1_{gate}_counted": sum(one["counts"] for one in of) for gate, of in told.items()},
        **{f"e1_{gate}_held": sum(one["holds"] for one in of) for gate, of in told.items()}, "e1_of": len(rows),
        "e1_verdict": verdict(rows),
    }  # fmt: skip


def verdict(rows: list[Found]) -> str:
    """One word for a reader who reads no further."""
    judged = [row[gate] for row in rows for gate in GATES if gate in row]
    counted = [one for one in judged if one["counts"]]
    if len(counted) < len(rows) * len(GATES):
        of = f"{len(counted)} of {len(rows) * len(GATES)} figures count"
        failed = sum(not one["holds"] for one in counted)
        return f"the machine is too busy: {of}" + (f", {failed} of them are over their gate" if failed else "")
    return "held" if all(one["holds"] for one in counted) else "over the gate"


def _measured(n_ranks: int, blocks: int, options: tuple[str, ...]) -> Found:
    try:
        turns, failed = _run(n_ranks, blocks, options)
    except JobFailed as error:
        return {"error": str(error)[-200:]}
    return {**judged(turns), "gathers_failed": failed}


def judged(turns: list[list[float]]) -> Found:
    """Seconds of the four kinds of turns, block by block → intervals, and which of them count and hold."""
    machine = slowdown_pct(turns[OFF], turns[OFF_AGAIN])
    off = [(one + other) / 2 for one, other in zip(turns[OFF], turns[OFF_AGAIN], strict=True)]
    found: Found = {"machine": _rounded(machine)}
    for gate, (base, treated) in {"wall": (off, turns[WALL]), "events": (turns[WALL], turns[WITH_EVENTS])}.items():
        interval = slowdown_pct(base, treated)
        is_quiet = max(abs(machine["lower95"]), abs(machine["upper95"])) < GATES[gate]
        found[gate] = {**_rounded(interval), "counts": is_quiet, "holds": interval["upper95"] < GATES[gate]}
    return found


def _rounded(interval: dict[str, float]) -> Found:
    return {name: round(pct, 3) for name, pct in interval.items()}


def said(row: Found) -> str:
    """A line of the progress."""
    if "error" in row:
        return f"E1 {row['road']}, {row['ranks']} ranks: {row['error'][-80:]}"
    parts = [
        f"{gate} {row[gate]['mid']:+.2f} % (up to {row[gate]['upper95']:.2f}){'' if row[gate]['counts'] else ', does not count'}"
        for gate in GATES
    ]
    machine = max(abs(row["machine"]["lower95"]), abs(row["machine"]["upper95"]))
    return f"E1 {row['road']}, {row['ranks']} ranks: {'; '.join(parts)}; nothing at all {machine:.2f} %"


def _run(n_ranks: int, blocks: int, options: tuple[str, ...]) -> tuple[list[list[float]], int]:
    """Seconds of rank 0's turns by kind, and the gathers that failed. Raises JobFailed."""
    with tempfile.TemporaryDirectory(prefix="diogenes-bench-", dir=_memory()) as folder:
        wanted = ("--ranks", str(n_ranks), "--steps", str(STEPS), "--blocks", str(blocks), "--base-ms", str(BASE_MS))
        segments = Path(folder) / "segments"
        segments.mkdir()
        made = run_job(
            Path(folder) / "job", *wanted, *options, "--seconds-max", "1800", DIOGENES_SEGMENT_DIR=str(segments)
        )
    turns = {(int(block), int(kind)): seconds for block, kind, seconds in made.blocks[0]}
    by_kind = [[turns[block, kind] for block in range(blocks)] for kind in range(4)]
    return by_kind, sum(counts["gathers_failed"] for counts in made.counts)


@contextmanager
def _others() -> Iterator[list[float | None]]:
    """Per cent of the processors that others used meanwhile; [None] where /proc does not say."""
    found: list[float | None] = [None]
    began, before, own = time.monotonic(), _busy_s(), _own_s()
    yield found
    if before is not None and (now := _busy_s()) is not None:
        spent = max(now - before - (_own_s() - own), 0.0)
        found[0] = round(100 * spent / max((time.monotonic() - began) * (os.cpu_count() or 1), 1e-9), 1)


def _busy_s() -> float | None:
    try:
        user, nice, system, _, _, irq, soft, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    return sum(
        of.ru_utime + of.ru_stime for of in map(resource.getrusage, (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
    )


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else BLOCKS)
