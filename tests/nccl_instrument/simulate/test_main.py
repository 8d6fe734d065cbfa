"""The command line: a folder others can read, refusals in a sentence, a list of faults, a bar that says how long."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from nccl_instrument.simulate.__main__ import main, parse_fault
from nccl_instrument.simulate.bar import Bar, line
from nccl_instrument.simulate.faults import KINDS, FaultError
from nccl_instrument.simulate.files import BadFolder, read_batches, read_truth
from nccl_instrument.wire import decode_batch
from tests.nccl_instrument.simulate.jobs import EIGHT

SMALL = ["--preset", "testbed", "--gpus", "8", "--tp", "2", "--pp", "2", "--seconds", "3", "--quiet"]


def test_a_folder_holds_the_job_its_batches_and_apart_from_them_the_truth(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert main([*SMALL, "--fault", "nic_limited,at=1,victim=3,amount=0.3", "--out", str(folder)]) == 0
    batches = list(read_batches(folder))
    assert len(batches) == 12
    assert [at for at, _ in batches] == sorted(at for at, _ in batches)
    assert {decode_batch(encoded).job for _, encoded in batches} == {"simulated"}
    assert [(one["fault"], one["ranks"], one["amount"]) for one in read_truth(folder)] == [("nic_limited", [3], 0.3)]
    described = (folder / "job.json").read_text()
    assert json.loads(described)["layout"]["pp"] == 2
    assert "nic_limited" not in described


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--gpus", "9", "--tp", "2", "--out", "x"], "9 / 2 is no whole number"),
        (
            ["--gpus", "8", "--tp", "2", "--pp", "2", "--dp", "3", "--out", "x"],
            "--gpus 8 is not tp 2 × pp 2 × dp 3 = 12",
        ),
        (["--gpus", "8", "--tp", "2", "--ep", "3", "--out", "x"], "--ep 3 does not divide --dp 4"),
        (["--gpus", "8", "--fault", "gremlins", "--out", "x"], "There is no fault “gremlins”"),
        (["--gpus", "8", "--fault", "nic_down,vicitm=3", "--out", "x"], "“vicitm=3”"),
        (["--gpus", "8", "--fault", "nic_down,victim=many", "--out", "x"], "“many”"),
        (["--gpus", "8", "--seconds", "0", "--out", "x"], "--seconds"),
        (["--gpus", "8"], "Say where the batches go"),
        (["--gpus", "8", "--server", "http://localhost:1"], "--server needs --token-file"),
        (["--gpus", "8", "--slot-kib", "-1", "--out", "x"], "--slot-kib"),
        (["--gpus", "8", "--wait-tick-ns", "-1", "--out", "x"], "--wait-tick-ns"),
        (["--gpus", "8", "--wait-share", "1", "--out", "x"], "--wait-share"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--preset", "testbed", "--quiet"]) == 2
    assert reason in capsys.readouterr().err


def test_every_fault_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list-faults"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [text.split()[0] for text in listed] == list(KINDS)


def test_victims_and_amounts_not_given_are_drawn_from_the_seed() -> None:
    drawn = {parse_fault("gpu_slow", EIGHT, 60, seed) for seed in range(20)}
    assert len({fault.ranks for fault in drawn}) > 3
    assert all(1.5 <= fault.amount <= 5 for fault in drawn)
    assert parse_fault("gpu_slow", EIGHT, 60, 7) == parse_fault("gpu_slow", EIGHT, 60, 7)
    with pytest.raises(FaultError):
        parse_fault("gpu_slow,at=5,until=3", EIGHT, 60, 1)


def test_a_damaged_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadFolder, match="holds no simulated job"):
        list(read_batches(tmp_path))
    main([*SMALL, "--out", str(tmp_path)])
    whole = (tmp_path / "batches.dgtb").read_bytes()
    (tmp_path / "batches.dgtb").write_bytes(whole[:-7])
    with pytest.raises(BadFolder, match="cut off"):
        list(read_batches(tmp_path))


def test_the_bar_says_how_far_and_how_long_still() -> None:
    assert line(15, 60, "s", 30.0) == "[#######.......................] 15.0 of 60 s in 30 s, 1 min 30 s left"
    assert line(0, 60, "s", 1.0).endswith("no estimate yet")
    assert "left" not in line(60, 60, "s", 100.0)
    out = io.StringIO()
    Bar(10, "s", out).end("12 batches")
    assert out.getvalue().endswith("12 batches\n")
