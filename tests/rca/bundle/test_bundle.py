"""Dumps of a job nobody traced: recognised by content, fused in the paper's order, and hostile archives refused."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from nccl_instrument.agent.dumps.stacks import NO_PYTHON
from nccl_instrument.dumps import RECORDER, STACKS, Silent
from rca.bundle import unpack
from rca.bundle.command import main
from rca.bundle.contents import read_contents
from rca.bundle.diagnosis import NO_STALL, diagnose_bundle, dumped_in
from rca.bundle.silent import SILENT_FILE, silent_in, silent_line
from rca.bundle.unpack import BadBundle, Unpacked
from rca.flight_recorder.reading import rank_in_name
from tests.rca.flight_recorder.real import FOLDER, dumps_of
from tests.rca.ras.test_ras import TEXT
from tests.rca.stacks.real import raw_dumps


def folder_of(path: Path, *files: tuple[str, bytes]) -> Path:
    for name, raw in files:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(raw)
    return path


def stacks_files(look: int) -> list[tuple[str, bytes]]:
    """The real stacks, of which rank 1 is in its data loader, named as anybody might."""
    return [
        (f"stacks/{name.split('_')[1]}_look{look}_rank{name[1]}.json", raw)
        for name, raw in raw_dumps().items()
        if name.endswith(f"_{look}.json")
    ]


def test_a_zip_of_dumps_gets_a_diagnosis(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(FOLDER / "skip.zip")]) == 0
    said = capsys.readouterr().out
    assert "Rank 3 left out op 21 of dp1" in said
    assert "Layer: out of sync." in said
    assert "No stacks: the bundle holds none." in said


def test_the_command_loads_nothing_that_diagnoses_windows() -> None:
    run = "runpy.run_module('rca', run_name='__main__')"
    code = f"import runpy, sys\ntry: {run}\nfinally: print('rca.diagnose' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "bundle", str(FOLDER / "skip.zip")], capture_output=True, text=True, check=True
    )
    assert "Rank 3 left out op 21 of dp1" in done.stdout
    assert done.stdout.splitlines()[-1] == "False"


def test_every_kind_of_file_is_told_by_what_is_in_it(tmp_path: Path) -> None:
    dumps = [(f"fr/{name}.bin", raw) for name, raw in dumps_of("loader")]
    path = folder_of(
        tmp_path, *dumps, *stacks_files(1), ("ras.txt", TEXT.format(many=3, few=2).encode()), ("notes", b"hi")
    )
    found = read_contents(Unpacked(path))
    assert found.recording is not None
    assert found.recording.ranks == (0, 1, 2, 3)
    assert {one.rank for one in found.stacks} == {0, 1, 2, 3}
    assert len(found.ras) == 1
    assert found.refused.keys() == {"notes"}


def test_recordings_that_claim_the_same_rank_are_refused_and_of_two_looks_the_last_is_read(tmp_path: Path) -> None:
    named = [(rank_in_name(name), raw) for name, raw in dumps_of("skip")]
    local = [(f"node{rank // 2}/rank{rank % 2}", raw) for rank, raw in named]
    found = read_contents(Unpacked(folder_of(tmp_path / "local", *local)))
    assert found.recording is None
    assert set(found.refused.values()) == {
        f"2 files are said to be of rank {rank}; name each with its rank in the whole job" for rank in (0, 1)
    }
    twice = [(f"look{look}_{rank}", raw if look == 2 else b"{}") for look in (1, 2) for rank, raw in named]
    found = read_contents(Unpacked(folder_of(tmp_path / "twice", *twice)))
    assert found.refused == {}
    assert found.recording is not None
    assert found.recording.ranks == (0, 1, 2, 3)


def test_a_file_of_stacks_is_of_the_rank_after_its_r_not_of_the_number_it_ends_with(tmp_path: Path) -> None:
    (_, raw), *_ = stacks_files(1)
    path = folder_of(tmp_path, ("node7_r3_991_1.json", raw), ("r12_4.json", raw), ("host-5.json", raw))
    assert sorted(one.rank for one in read_contents(Unpacked(path)).stacks) == [3, 5, 12]


def test_where_stacks_and_recorder_name_the_same_rank_the_stacks_say_why(tmp_path: Path) -> None:
    moved = {0: 0, 1: 2, 2: 1, 3: 3}  # so that both name rank 2
    stacks = [
        (name.replace(f"rank{r}", f"rank{moved[r]}"), raw)
        for r in moved
        for name, raw in stacks_files(1)
        if f"rank{r}" in name
    ]
    found = diagnose_bundle(
        dumped_in(read_contents(Unpacked(folder_of(tmp_path, *dumps_of("loader"), *stacks)))), "job"
    )
    assert (found.layer, found.culprits) == ("data loader", (2,))
    assert any("same culprit: Rank 2" in said for said in found.agreement)
    assert found.victims == (0, 1, 3)


def test_sources_that_disagree_are_said_to(tmp_path: Path) -> None:
    path = folder_of(tmp_path, *dumps_of("loader"), *stacks_files(1))
    found = diagnose_bundle(dumped_in(read_contents(Unpacked(path))), "job")
    assert found.culprits == (1,), "rank 2, which the recorder names, waits for others by its stack"
    assert any(said.startswith("Flight recorder, disagrees: Rank 2") for said in found.agreement)


def test_two_looks_at_the_same_processes_tell_that_nothing_moves(tmp_path: Path) -> None:
    found = diagnose_bundle(
        dumped_in(read_contents(Unpacked(folder_of(tmp_path, *stacks_files(1), *stacks_files(2))))), "job"
    )
    assert "does not move" in found.verdict
    assert found.layer == "data loader"


def test_dumps_of_a_job_that_is_well_name_nobody_and_no_layer(tmp_path: Path) -> None:
    found = diagnose_bundle(dumped_in(read_contents(Unpacked(FOLDER / "healthy.zip"))), "job")
    assert (found.findings, found.layer) == ((), "")
    assert found.verdict == "Nobody stands out in what was looked at."
    assert NO_STALL in found.missing


def test_where_an_op_is_open_and_nobody_stands_out_the_layer_is_below(tmp_path: Path) -> None:
    contents = read_contents(Unpacked(FOLDER / "healthy.zip"))
    assert contents.recording is not None
    entries = contents.recording.entries.copy()
    newest = [np.flatnonzero(entries["rank"] == rank)[-1] for rank in contents.recording.ranks]
    entries["is_finished"][newest], entries["completed_ns"][newest], entries["state"][newest] = False, 0, 1
    contents.recording = dataclasses.replace(contents.recording, entries=entries)
    found = diagnose_bundle(dumped_in(contents), "job")
    assert NO_STALL not in found.missing
    assert found.layer or found.findings


def test_our_own_zip_in_which_nobody_gave_a_dump_is_read_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = [Silent(rank, f"node-{rank // 2}", STACKS, NO_PYTHON) for rank in range(4)]
    said = "".join(map(silent_line, silent)) + "no such line\nraw of rank 9 on x: y\n"
    assert silent_in(said.encode()) == silent
    archive = tmp_path / "dumps.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(SILENT_FILE, said)
    assert main([str(archive)]) == 0
    printed = capsys.readouterr().out
    assert NO_PYTHON in printed
    assert "Nobody stands out in what was looked at." in printed
    assert "Layer: cannot be told." in printed


def test_a_line_of_who_gave_none_survives_any_name_and_reason() -> None:
    odd = Silent(-1, "a:b\nc", RECORDER, "it said:\n no")
    assert silent_in(silent_line(odd).encode()) == [Silent(-1, "a_b c", RECORDER, "it said: no")]
    assert silent_in(b"\xff\x00" * 50) == []


def test_json_has_the_diagnosis_the_layer_and_who_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", str(FOLDER / "kind.zip")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["diagnosis"]["findings"][0]["culprits"] == [1]
    assert said["layer"] == "out of sync"


@pytest.mark.parametrize("words", [["/nowhere"], ["--group", "tp0", "x"]])
def test_what_cannot_be_read_is_one_sentence_and_status_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_saved_window_is_told_where_it_belongs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.npz"
    np.savez(path, head=np.zeros(1))
    assert main([str(path)]) == 2
    assert f"`python -m rca {path}`" in capsys.readouterr().err


def test_an_empty_folder_holds_no_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder_of(tmp_path, ("a.txt", b"nothing")))]) == 2
    assert "holds no dump" in capsys.readouterr().err


def test_paths_that_lead_out_links_and_bombs_are_left_out_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpack, "FILE_BYTES_MAX", 10**6)
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../etc/passwd-1", b"{}")
        archive.writestr("/abs-2", b"{}")
        archive.writestr("bomb-3", bytes(2 * 10**6))
        link = zipfile.ZipInfo("link-4")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("good-5", b"{}")
    files = Unpacked(path)
    assert [name for name, _ in files] == ["good-5"]
    assert files.refused.keys() == {"../../etc/passwd-1", "/abs-2", "bomb-3", "link-4"}


def test_links_in_a_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link-1").symlink_to("/etc/passwd")
    files = Unpacked(tmp_path)
    assert (list(files), files.refused) == ([], {"link-1": "it is a link"})


def test_all_files_together_have_a_limit_and_so_has_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of(tmp_path, ("a-1", bytes(60)), ("b-2", bytes(60)))
    monkeypatch.setattr(unpack, "ALL_BYTES_MAX", 100)
    files = Unpacked(tmp_path)
    assert (len(list(files)), list(files.refused)) == (1, ["b-2"])
    monkeypatch.setattr(unpack, "FILES_MAX", 1)
    with pytest.raises(BadBundle, match="more than 1 files"):
        list(Unpacked(tmp_path))


def test_a_zip_cut_short_is_refused_or_read_as_far_as_it_goes(tmp_path: Path) -> None:
    raw = (FOLDER / "skip.zip").read_bytes()
    for n in range(0, len(raw), 997):
        path = tmp_path / "cut.zip"
        path.write_bytes(raw[:n])
        with pytest.raises(BadBundle):
            list(Unpacked(path))


def test_a_files_name_brings_no_escapes_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder_of(tmp_path, ("a\x1b]0;mine\x07.txt", b"nothing"))
    assert main([str(path)]) == 2
    (path / "x\x1b[2J-0").write_bytes(dict(dumps_of("loader"))["loader_host-0"])
    assert main([str(path)]) == 0
    told = capsys.readouterr()
    assert "]0;mine" in told.out and "\x1b" not in told.out + told.err


def test_a_rank_whose_recording_cannot_be_read_is_unknown_and_one_brought_twice_is_read_once(tmp_path: Path) -> None:
    files = [(name, b"\x80nonsense" if name.endswith("2") else raw) for name, raw in dumps_of("loader")]
    found = diagnose_bundle(dumped_in(read_contents(Unpacked(folder_of(tmp_path, *files)))), "job")
    assert (found.culprits, found.layer) == ((), "")
    assert (
        "Nothing is known of rank 2 (its dump cannot be read: it is not a complete pickle" in found.findings[0].sentence
    )
    assert "not a complete pickle" in str(found.missing)
    twice = read_contents(Unpacked(FOLDER / "loader.zip"))  # as a pickle and as JSON
    assert twice.recording is not None and (twice.recording.ranks, twice.refused) == ((0, 1, 2, 3), {})


def test_ranks_that_two_files_claim_are_unknown(tmp_path: Path) -> None:
    files = [(name, raw) for name, raw in dumps_of("loader")]
    files += [(f"other/{name}", raw) for name, raw in files if name.endswith("2")]
    found = diagnose_bundle(dumped_in(read_contents(Unpacked(folder_of(tmp_path, *files)))), "job")
    assert found.culprits == () and "2 files are said to be of rank 2" in found.findings[0].sentence


def test_a_bundle_that_is_not_there_is_said_to_be_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "no such file or folder" in capsys.readouterr().err
