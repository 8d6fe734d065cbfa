"""`make bench NAME=stages`: what recording stages costs the trainer, the bytes of it, how fast they are accounted, and
what a pass of the stack over them takes."""

from __future__ import annotations

import json
import os

from tests.bench import stages_accounting
from tests.bench.stages_read import RANKS, read_figures
from tests.bench.stages_recorder import recorder_figures

PASSES = (1_000, RANKS)


def main() -> None:
    recorder = recorder_figures()
    for name, figure in recorder.items():
        print(f"{name}: {figure}", flush=True)
    accounting = stages_accounting.measure()
    passes = {str(n_ranks): read_figures(n_ranks) for n_ranks in PASSES}
    for name, one in passes.items():
        print(f"a pass over {int(name):,} ranks: {one}", flush=True)
    report = {"bench": "stages", "cores": os.cpu_count(), **recorder, "accounting": accounting, "passes": passes}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
