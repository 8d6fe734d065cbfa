"""`python -m rca bundle` of an incident's evidence, as an archive or unpacked: its traces and its dumps are diagnosed."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ingest.window import save_window
from nccl_instrument.dumps import NO_PYTHON, RECORDER, STACKS, Silent
from rca.bundle import evidence as evidence_module
from rca.bundle.command import TRACES
from rca.bundle.command import main as of_dumps
from rca.bundle.evidence import evidence_among
from rca.bundle.evidence_command import APART, main
from rca.bundle.silent import SILENT_FILE, silent_text
from rca.saved_window import main as diagnose_window
from tests.windows import make_window

WHY = f"{NO_PYTHON}, so it has no Python stack"
CULPRIT = "NIC nic1 of node1 is down: rank 3"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Evidence of a NIC that is down; of no process came a dump, and the newest of its diagnoses says so."""
    made = tmp_path / "incident-7"
    (made / "dumps").mkdir(parents=True)
    (made / "diagnoses").mkdir()
    save_window(made / "window.npz", make_window(nic_down=3))
    (made / "MANIFEST.json").write_text("{}")
    silent = [Silent(rank, "node-0", STACKS, WHY) for rank in range(8)]
    silent += [Silent(rank, "node-0", RECORDER, "no answer within the time") for rank in range(8)]
    (made / "dumps" / SILENT_FILE).write_text(silent_text(silent * 2))
    for number, agreement in ((9, []), (10, ["No stacks."])):
        said = {"id": number, "diagnosis": {"agreement": agreement}}
        (made / "diagnoses" / f"{number}.json").write_text(json.dumps(said))
    return made


def zipped(folder: Path, into: str = "") -> Path:
    path = folder.parent / "evidence.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in folder.rglob("*"):
            if one.is_file():
                archive.write(one, into + one.relative_to(folder).as_posix())
    return path


def test_as_an_archive_unpacked_or_by_its_dumps_it_names_the_culprit_of_the_traces_and_says_who_gave_no_dump(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (zipped(folder), zipped(folder, "incident-7/"), folder, folder / "dumps"):
        assert evidence_among([str(path)])
        assert main([str(path)]) == 0
        printed = capsys.readouterr().out
        assert CULPRIT in printed and f"No stacks of ranks 0–7: {WHY}" in printed


def test_the_command_itself_takes_it(folder: Path) -> None:
    command = [sys.executable, "-m", "rca", "bundle", str(zipped(folder)), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (found,) = json.loads(done.stdout)["diagnoses"]
    assert found["findings"][0]["culprits"] == [3]


def test_dumps_that_its_newest_diagnosis_does_not_rest_on_are_left_out_and_that_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "diagnoses" / "11.json").write_text('{"diagnosis": {"agreement": []}}')
    assert main([str(zipped(folder))]) == 0
    printed = capsys.readouterr().out
    assert CULPRIT in printed and APART in printed and "No stacks" not in printed


def test_evidence_without_dumps_is_that_of_its_traces(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "dumps" / SILENT_FILE).unlink()
    (folder / "dumps").rmdir()
    assert main([str(folder)]) == 0
    printed = capsys.readouterr().out
    assert CULPRIT in printed and APART not in printed


def test_what_is_damaged_or_too_large_is_refused_in_a_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = zipped(folder)
    with monkeypatch.context() as patched:
        patched.setattr(evidence_module, "BYTES_MAX", 10)
        assert main([str(archive)]) == 2
    raw = bytearray(archive.read_bytes())
    at = raw.find(b"window.npz") + 200
    raw[at : at + 50] = b"\xff" * 50
    archive.write_bytes(raw)
    assert main([str(archive)]) == 2
    (folder / "window.npz").write_bytes(b"no window")
    assert main([str(folder)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 3


def test_in_the_sandbox_its_dumps_alone_are_read_and_what_is_left_out_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not evidence_among(["--sandboxed", str(folder)])
    assert of_dumps([str(zipped(folder))]) == 0
    printed = capsys.readouterr().out
    assert f"window.npz: {TRACES}." in printed and CULPRIT not in printed


def test_other_folders_and_archives_are_no_evidence(folder: Path) -> None:
    (folder / "MANIFEST.json").unlink()
    assert not evidence_among([str(folder), str(folder / "dumps"), str(zipped(folder)), str(folder / "window.npz")])
    assert not evidence_among(["--json", str(folder.parent / "nothing.zip")])


def test_of_several_looks_and_kinds_a_process_has_one_reason() -> None:
    silent = [Silent(3, "n", STACKS, WHY), Silent(3, "n", RECORDER, "no answer"), Silent(4, "n", RECORDER, "no answer")]
    assert silent_text(silent * 2).splitlines() == [
        f"stacks of rank 3 on n: {WHY}",
        f"recorder of rank 3 on n: {NO_PYTHON}, so it has no flight recorder",
        "recorder of rank 4 on n: no answer",
    ]


def test_the_command_for_windows_says_which_command_is_for_evidence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (folder, zipped(folder)):
        assert diagnose_window([str(path)]) == 2
        assert f"`python -m rca bundle {path}` diagnoses it" in capsys.readouterr().err
