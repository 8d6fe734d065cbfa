"""`make bench NAME=stages`: what recording stages costs the trainer, the bytes of it, and how fast they are accounted."""

from __future__ import annotations

import json
import os

from tests.bench import stages_accounting
from tests.bench.stages_recorder import recorder_figures


def main() -> None:
    recorder = recorder_figures()
    for name, figure in recorder.items():
        print(f"{name}: {figure}", flush=True)
    report = {"bench": "stages", "cores": os.cpu_count(), **recorder, "accounting": stages_accounting.measure()}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
