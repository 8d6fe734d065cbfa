"""Reads Kineto traces with HolisticTraceAnalysis and prints the ranges of the given names as JSON, for E9.

Run where HTA is: python tests/eval/torch_jobs/hta_ranges.py NAME,NAME… TRACE… Each range is [trace, name, start µs, length µs];
`s` is how long HTA took to take them in.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from pathlib import Path

from hta.common.trace import Trace  # type: ignore[import-not-found]


def main(names: list[str], paths: list[Path]) -> None:
    began = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        trace = Trace(trace_files={at: str(path) for at, path in enumerate(paths)}, trace_dir=str(paths[0].parent))
        trace.parse_traces(use_multiprocessing=False)
    ids, found = trace.symbol_table.get_sym_id_map(), []
    wanted = {ids[name]: name for name in names if name in ids}
    for at in range(len(paths)):
        rows = trace.get_trace(at)
        for name, start, took in rows[rows["name"].isin(wanted)][["name", "ts", "dur"]].itertuples(index=False):
            found.append([at, wanted[name], float(start), float(took)])
    print(json.dumps({"s": round(time.process_time() - began, 3), "ranges": found}))


if __name__ == "__main__":
    main(sys.argv[1].split(","), [Path(one) for one in sys.argv[2:]])
