"""What one pass over the stages of a very large job takes: reading, cutting, accounting, keeping the packet; and its memory.

`python -m tests.bench.stages_read [RANKS]`. Batches of so many ranks at ten steps a second go through ingest's own application
into a PostgreSQL of its own; a process of its own then makes the pass that the stack makes every five seconds, with one window
due, and another pass with none due (stages_pass.py).
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from tests.bench.ingest import Machine
from tests.bench.rca import child

RANKS: Final = 10_000


def read_figures(n_ranks: int = RANKS) -> dict[str, Any]:
    """Seconds of the pass with a window due and of the next, packets, memory (MB)."""
    with Machine(None, n_ingests=0) as machine:
        stored = child(machine, "stages_pass", "store", str(n_ranks))
        return {**child(machine, "stages_pass", "pass"), **stored}


if __name__ == "__main__":
    print(json.dumps({**read_figures(int(sys.argv[1]) if len(sys.argv) > 1 else RANKS)}))
