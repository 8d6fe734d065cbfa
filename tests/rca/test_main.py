"""`python -m rca`: a saved window is diagnosed on any machine; anything else is refused in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ingest.window import Window, save_window
from rca.diagnose import diagnose
from rca.findings import Compared, Cover, NodeClock, Symptom, SymptomKind, to_json
from rca.printed import text
from rca.saved_window import main
from tests.rca import test_slowdown
from tests.windows import make_window


def test_a_hang_is_printed_with_culprit_victims_and_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_window(tmp_path / "w.npz", make_window(nic_down=3))
    assert main([str(tmp_path / "w.npz")]) == 0
    printed = capsys.readouterr().out
    assert "NIC nic1 of node1 is down: rank 3" in printed
    assert "waits for 3" in printed


def test_json_holds_the_whole_diagnosis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_window(tmp_path / "w.npz", make_window(stuck_before=5))
    assert main([str(tmp_path / "w.npz"), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["diagnoses"]
    assert found["findings"][0]["culprits"] == [5]


def test_a_healthy_window_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_window(tmp_path / "w.npz", make_window())
    assert main([str(tmp_path / "w.npz")]) == 0
    assert "Nothing is wrong" in capsys.readouterr().out


def test_a_window_of_which_something_cannot_be_read_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_window(tmp_path / "w.npz", replace(make_window(), unreadable={"node2": 7}))
    assert main([str(tmp_path / "w.npz")]) == 0
    assert "cannot be read: 7 table groups of node2" in capsys.readouterr().out


def test_a_file_that_is_no_window_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    assert main([str(tmp_path / "other.npz")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_it_needs_nothing_but_numpy(tmp_path: Path) -> None:
    save_window(tmp_path / "w.npz", make_window(frozen=2))
    code = "import sys; from rca.saved_window import main; main(sys.argv[1:]); print([m for m in sys.modules if m == 'django'])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "w.npz")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().endswith("[]")


def only_ranks(window: Window, *kept: int) -> Window:
    tables = {
        name: rows[np.isin(rows["rank"], kept)] if name not in ("nic", "loss") else rows
        for name, rows in window.tables.items()
    }
    members, ranks = (rows[np.isin(rows["rank"], kept)] for rows in (window.members, window.ranks))
    return replace(window, tables=tables, members=members, ranks=ranks)


@pytest.mark.parametrize(("kept", "said"), [((3,), "holds one rank"), ((), "holds no rank")])
def test_a_window_of_one_rank_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: tuple[int, ...], said: str
) -> None:
    save_window(tmp_path / "w.npz", only_ranks(make_window(nic_down=3), *kept))
    assert main([str(tmp_path / "w.npz")]) == 2
    printed = capsys.readouterr()
    assert said in printed.err and len(printed.err.splitlines()) == 1 and not printed.out


def with_one(window: Window, table: str, column: str, value: int) -> Window:
    """The same, but for one value in one row."""
    rows = (window.ranks if table == "ranks" else window.rows(table)).copy()
    rows[column][0] = value
    return replace(window, ranks=rows) if table == "ranks" else replace(window, tables={**window.tables, table: rows})


@pytest.mark.parametrize(("table", "column", "value"), [("nic", "port_state", 255), ("ranks", "rank", 2**31 - 1)])
def test_a_window_with_rows_that_no_agent_sends_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str, column: str, value: int
) -> None:
    save_window(tmp_path / "w.npz", with_one(make_window(nic_down=3), table, column, value))
    assert main([str(tmp_path / "w.npz"), "--anyway"]) == 2
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1 and not printed.out


@pytest.mark.parametrize("format_", ['"9\\n\\n9"', "true"])
def test_a_format_that_is_no_number_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], format_: str
) -> None:
    np.savez(tmp_path / "w.npz", head=np.array(f'{{"format": {format_}}}'))
    assert main([str(tmp_path / "w.npz")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("--max-gib", "nan"),
        ("--max-gib", "inf"),
        ("--max-gib", "a"),
        ("--why-not", "10" * 12),
        ("--why-not", "-1"),
        ("--why-not", "a"),
    ],
)
def test_arguments_that_say_nothing_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    save_window(tmp_path / "w.npz", make_window(nic_down=3))
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "w.npz"), *words])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "number" in said and f"argument {words[0]}:" in said


def test_names_that_cannot_be_printed_are_printed_as_they_are_written(tmp_path: Path) -> None:
    window = make_window(nic_down=3)
    nodes = window.nodes.copy()
    nodes["name"][:] = [f"n\udcff{at}" for at in range(len(nodes))]
    save_window(tmp_path / "w.npz", replace(window, nodes=nodes))
    done = subprocess.run([sys.executable, "-m", "rca", str(tmp_path / "w.npz")], capture_output=True, text=True)
    assert done.returncode in (0, 2) and "Traceback" not in done.stderr


def test_files_cut_off_of_other_versions_or_with_objects_are_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "w.npz"
    save_window(path, make_window(nic_down=3))
    whole = path.read_bytes()
    np.savez(tmp_path / "version.npz", head=np.array('{"format": 99}'))
    np.savez(tmp_path / "objects.npz", head=np.array('{"format": 1}'), nodes=np.array([{}], dtype=object))
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    for name in ("version", "objects", "cut", "nothing"):
        assert main([str(tmp_path / f"{name}.npz")]) == 2
        printed = capsys.readouterr()
        assert len(printed.err.splitlines()) == 1 and not printed.out
    assert main([str(path), "--max-gib", "0.00001"]) == 2
    assert "allowed" in capsys.readouterr().err


def test_why_not_another_rank_is_answered_with_evidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_window(tmp_path / "w.npz", make_window(nic_down=3))
    assert main([str(tmp_path / "w.npz"), "--why-not", "6"]) == 0
    answer = capsys.readouterr().out.split("Why not rank 6")[-1]
    assert answer.startswith(" (node3)? It waits for rank")
    assert "- process state: S" in answer
    assert main([str(tmp_path / "w.npz"), "--why-not", "6", "--json"]) == 0
    ((one,),) = json.loads(capsys.readouterr().out)["why_not"]
    assert one["subject"]["ranks"] == [6]


def test_why_not_is_answered_of_a_healthy_job_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_window(tmp_path / "w.npz", make_window())
    assert main([str(tmp_path / "w.npz"), "--why-not", "5"]) == 0
    assert "Why not rank 5" in capsys.readouterr().out


@pytest.mark.parametrize(("world_size", "said"), [(8, "the job has ranks 0 to 7"), (0, "nothing in this window")])
def test_why_not_a_rank_that_is_not_there_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], world_size: int, said: str
) -> None:
    save_window(tmp_path / "w.npz", replace(make_window(nic_down=3), world_size=world_size))
    assert main([str(tmp_path / "w.npz"), "--why-not", "99"]) == 2
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1 and not printed.out
    assert "--why-not 99" in printed.err and said in printed.err
    assert main([str(tmp_path / "w.npz"), "--why-not", "6"]) == 0


def test_everything_a_diagnosis_holds_is_printed() -> None:
    found = diagnose(make_window(nic_down=3), Symptom(SymptomKind.FAILURE, "job", 1, 1, 2, 0, (), ""))
    best = replace(
        found.findings[0], cover=(Cover("flow", 1, 32, "rank 3"),), parts=(Compared("copies", 30.0, 75.0, "ms"),)
    )
    printed = text(
        replace(
            found, findings=(best,), clocks=(NodeClock("node1", 40_000_000, 1_000_000), NodeClock("node0", 0, 1_000_000)),
            compared=(Compared("iteration", 0.18, 0.4, "s"),),
        )
    )  # fmt: skip
    for said in (
        "1 of 32 flows of rank 3", "copies: 75 ms, usually 30 ms", "iteration: 0.4 s, usually 0.18 s",
        "node1 +40.0 ±1.0 ms", "next: On node1: `ip -s link show nic1`", "Why not rank",
    ):  # fmt: skip
        assert said in printed, printed


def test_a_window_that_says_what_it_was_diagnosed_for_gives_that_diagnosis_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    window = test_slowdown.recorded("slow_copies_2")
    found = test_slowdown.diagnosed(window)
    asked = {"symptom": to_json(found.symptom), "thresholds": found.thresholds}
    save_window(tmp_path / "w.npz", window, asked)
    assert main([str(tmp_path / "w.npz"), "--json"]) == 0
    (again,) = json.loads(capsys.readouterr().out)["diagnoses"]
    assert again == json.loads(json.dumps(to_json(found)))


def test_thresholds_that_are_unknown_here_are_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    window = test_slowdown.recorded("slow_copies_2")
    found = test_slowdown.diagnosed(window)
    save_window(
        tmp_path / "w.npz",
        window,
        {"symptom": to_json(found.symptom), "thresholds": found.thresholds | {"of_tomorrow": 7}},
    )
    assert main([str(tmp_path / "w.npz")]) == 0
    said = capsys.readouterr()
    assert said.err == f"{tmp_path / 'w.npz'}: thresholds unknown here are left out: 'of_tomorrow'.\n"
    assert "rank 2" in said.out.lower()


@pytest.mark.parametrize(
    "asked",
    [
        {"symptom": 5},
        {"thresholds": {}},
        {"symptom": {"kind": "boredom"}},
        {"symptom": {}, "thresholds": {"delta_s": []}},
    ],
)
def test_a_window_that_was_diagnosed_for_nonsense_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: dict[str, object]
) -> None:
    save_window(tmp_path / "w.npz", make_window(nic_down=3), asked)
    assert main([str(tmp_path / "w.npz")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    sane = to_json(Symptom(SymptomKind.FAILURE, "job", 1, 1, 2, 0, (), ""))
    for name, wrong in {
        "at_ns": "now",
        "comm_id": "zz",
        "job": 5,
        "sentence": ["a"],
        "numbers": {"iteration_s": "1"},
    }.items():
        save_window(tmp_path / "w.npz", make_window(nic_down=3), {"symptom": {**sane, name: wrong}})
        assert main([str(tmp_path / "w.npz")]) == 2, name


def test_the_help_names_the_other_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "bundle FOLDER_OR_ZIP" in said
    assert "stages FILE" in said
