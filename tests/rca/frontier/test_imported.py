"""What people have already becomes stages: TraceML's summary and profiler traces; anything else is refused with a sentence."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nccl_instrument.stage_schema import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER, OTHER
from rca.frontier.command import main
from rca.frontier.imported import TO_DEVICE, BadImport, read_imported

METRICS = {
    "input_wait_ms": 8.0, "h2d_ms": 2.0, "forward_ms": 60.0, "backward_ms": 100.0, "optimizer_ms": 20.0, "residual_ms": 4.0,
    "step_time_ms": 194.0, "step_time_gpu_ms": None,
}  # fmt: skip


def traceml(tmp_path: Path, **changes: Any) -> Path:
    """A summary of four ranks; rank 2's data comes 100 ms late, the others wait for it in backward."""
    rows = {
        str(rank): {"identity": {"global_rank": rank}, "metrics": {**METRICS, "backward_ms": 200.0}}
        for rank in range(4)
    }
    rows["2"]["metrics"] = {**METRICS, "input_wait_ms": 108.0}
    whole = {"schema_version": "1.7", "step_time": {"groups": {"by": "rank", "rows": rows}}, **changes}
    path = tmp_path / "final_summary.json"
    path.write_text(json.dumps(whole))
    return path


def trace(tmp_path: Path, rank: int, late_us: int = 0, steps: int = 3, **changes: Any) -> Path:
    """A profiler trace as record_function leaves it, with an op inside forward and one on another thread."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name"},
        {"ph": "X", "name": "broken", "ts": "no", "dur": 1},
    ]
    at = 1_000_000.0
    for step in range(steps):
        begin, cursor = at, at
        for name, took in (
            (DATA, 5000 + late_us),
            (FORWARD, 60_000),
            (BACKWARD, 200_000 - late_us),
            ("Optimizer.step#SGD", 9000),
        ):
            events.append(
                {"ph": "X", "cat": "user_annotation", "name": name, "ts": cursor, "dur": took, "pid": 1, "tid": 7}
            )
            cursor += took
        events.append(
            {"ph": "X", "cat": "user_annotation", "name": "forward", "ts": at + 10, "dur": 20, "pid": 1, "tid": 7}
        )
        events.append({"ph": "X", "cat": "user_annotation", "name": FORWARD, "ts": at, "dur": 900, "pid": 1, "tid": 9})
        at = cursor + 3000
        step_range = {"name": f"ProfilerStep#{step + 5}", "ts": begin, "dur": at - begin, "pid": 1, "tid": 7}
        events.append({"ph": "X", "cat": "user_annotation", **step_range})
    whole = {"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events, **changes}
    path = tmp_path / f"trace-{rank}.json.gz"
    path.write_bytes(gzip.compress(json.dumps(whole).encode()))
    return path


def test_a_summary_of_traceml_is_a_step_of_every_rank(tmp_path: Path) -> None:
    found = read_imported([traceml(tmp_path)])
    assert found.source == "TraceML 1.7"
    assert found.window.stages[:3] == (DATA, TO_DEVICE, FORWARD)
    assert found.window.durations.shape == (1, 4, 6)
    assert np.allclose(found.window.durations[0, 2], [0.108, 0.002, 0.06, 0.1, 0.02, 0.004])


def test_what_a_summary_lacks_is_said_and_limits_the_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = traceml(tmp_path)
    whole = json.loads(path.read_text())
    whole["step_time"]["groups"]["rows"]["1"]["metrics"]["forward_ms"] = None
    path.write_text(json.dumps(whole))
    assert main([str(path)]) == 0
    said = capsys.readouterr().out
    assert f"{FORWARD} is missing on 1 of 4 ranks and taken as 0." in said
    assert "telemetry_limited" in said


def test_traces_of_ranks_become_their_common_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [trace(tmp_path, 0, steps=4), trace(tmp_path, 1, late_us=150_000)]
    found = read_imported(files)
    assert (found.window.ranks, found.window.first_step) == ((0, 1), 5)
    assert found.window.stages == (
        DATA,
        FORWARD,
        BACKWARD,
        OPTIMIZER,
        CALLBACKS,
        OTHER,
    )  # as they come, unseen ones last
    assert found.told == ("1 steps are not in the traces of every rank and are left out.",)
    assert np.allclose(found.window.durations[0, 1], [0.155, 0.06, 0.05, 0.009, 0.0, 0.003])
    assert main([str(one) for one in files]) == 0
    assert "Rank 1 leads data, 150.0 ms before the second." in capsys.readouterr().out


def test_a_loop_that_names_nothing_has_forward_and_backward_by_what_torch_names_itself(tmp_path: Path) -> None:
    """Autograd works on a thread of its own; what lies in no stage is said, with how to name it."""
    events = []
    for step in range(3):
        begin = 100_000.0 * step
        named = [
            (f"ProfilerStep#{step}", begin, 90_000.0, 7), ("DistributedDataParallel.forward", begin + 2_000, 10_000.0, 7),
            ("Optimizer.step#SGD.step", begin + 40_000, 3_000.0, 7),
        ]  # fmt: skip
        engine = "autograd::engine::evaluate_function: AddmmBackward0"
        named += [(engine, begin + 15_000 + 2_000 * at, 1_000.0, 8) for at in range(10)]
        events += [
            {
                "ph": "X",
                "cat": "user_annotation" if tid == 7 else "cpu_op",
                "name": name,
                "ts": ts,
                "dur": dur,
                "pid": 1,
                "tid": tid,
            }
            for name, ts, dur, tid in named
        ]
    path = tmp_path / "trace-0.json"
    path.write_text(json.dumps({"traceEvents": events}))
    found = read_imported([path])
    took = dict(zip(found.window.stages, found.window.durations[0, 0].tolist(), strict=True))
    assert np.allclose([took[FORWARD], took[BACKWARD], took[OPTIMIZER], took[OTHER]], [0.010, 0.019, 0.003, 0.058])
    assert any("record_function" in one for one in found.told)


def test_numbers_that_no_clock_has_counted_are_none(tmp_path: Path) -> None:
    path = tmp_path / "trace-0.json"
    digits = "9" * 400
    path.write_text(f'{{"traceEvents": [{{"ph": "X", "name": "step", "ts": {digits}, "dur": 1}}]}}')
    with pytest.raises(BadImport, match="no step in common"):
        read_imported([path])
    path.write_text(
        f'{{"step_time": {{"groups": {{"rows": {{"\u00b2": {{}}, "0": {{"metrics": {{"forward_ms": {digits}}}}}}}}}}}}}'
    )
    with pytest.raises(BadImport, match="no rank has a stage"):
        read_imported([path])


def test_the_report_is_json_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", str(traceml(tmp_path))]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["report"]["routing"][0] == DATA


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "is not JSON"),
        (b"[1, 2]", "is not a JSON object"),
        (b'{"schema_version": "2.0", "groups": {}}', "has schema 2.0"),
        (
            b'{"step_time": {"groups": {"rows": {"0": {"metrics": {"forward_ms": -1}}}}}}',
            "no rank has a stage with a time",
        ),
        (b'{"step_time": {"groups": {"rows": {"x": 3}}}}', "no step times per rank"),
        (b'{"traceEvents": 3}', "traceEvents is no list"),
        (b'{"traceEvents": [{"ph": "X", "name": "a", "ts": NaN, "dur": 1}]}', "no step in common"),
    ],
)
def test_anything_else_is_refused_with_a_sentence(
    tmp_path: Path, raw: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "final_summary.json"
    path.write_bytes(raw)
    assert main([str(path)]) == 2
    assert said in capsys.readouterr().err


def test_two_files_of_one_rank_and_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    one = trace(tmp_path, 0)
    with pytest.raises(BadImport, match="of rank 0, and so is another"):
        read_imported([one, one])
    with pytest.raises(BadImport, match="cannot be read"):
        read_imported([tmp_path / "none.json"])
    (tmp_path / "w.npz").write_bytes(b"PK")
    with pytest.raises(BadImport, match=re.escape(f"`python -m rca {tmp_path / 'w.npz'}`")):
        read_imported([tmp_path / "w.npz"])
    broken = tmp_path / "t.json.gz"
    broken.write_bytes(one.read_bytes()[:100])
    with pytest.raises(BadImport, match="is not JSON"):
        read_imported([broken])
