"""What the command prints: the words of the page, and no traceback when nobody reads the rest."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import pytest

from ingest.window import save_window
from rca.diagnose import diagnose
from rca.findings import Cover, FaultKind, NodeClock, Subject, Symptom, SymptomKind
from rca.printed import text
from rca.words import COMPONENT_WORDS, KIND_WORDS, STALLED_WORDS, SYMPTOM_WORDS, cover_words, kind_words, subject_words
from tests.windows import make_window

PAGE = Path(__file__).parents[2] / "frontend/src/state/words.ts"


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("SYMPTOM", SYMPTOM_WORDS),
        ("COMPONENT", COMPONENT_WORDS),
        ("FAULT_KIND", KIND_WORDS),
        ("STALLED", STALLED_WORDS),
    ],
)
def test_codes_are_in_the_words_of_the_page(name: str, ours: dict[StrEnum, str]) -> None:
    told = re.search(rf"export const {name}: Record<string, string> = \{{(.*?)\n\}};", PAGE.read_text(), re.S)
    assert told
    theirs = dict(re.findall(r"(\w+): \"([^\"]+)\"", told[1]))
    assert {code.value: words for code, words in ours.items()} == theirs


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (Cover("flow", 1, 32, "rank 4"), "1 of 32 flows of rank 4"),
        (Cover("rank", 8, 8, "node-1"), "all 8 ranks of node-1"),
        (Cover("flow in progress", 4, 4, "rank 4"), "all 4 flows in progress of rank 4"),
        (Cover("nic", 1, 1, ""), "the only NIC"),
        (Cover("nic", 2, 1024, "the job"), "2 of 1,024 NICs of the job"),
    ],
)
def test_how_far_it_reaches_is_said_as_on_the_page(part: Cover, said: str) -> None:
    assert cover_words(part) == said


def test_what_stands_still_has_not_slowed_down() -> None:
    slow = FaultKind.COMPUTATION_FAIL_SLOW
    assert kind_words(slow, SymptomKind.FAILURE) == "computation stands still"
    assert kind_words(slow, SymptomKind.STRAGGLER) == "computation slowed down"


@pytest.mark.parametrize("form", ["", "--json"])
def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path, form: str) -> None:
    path = tmp_path / "window.npz"
    save_window(path, make_window(nic_down=3))
    command = [sys.executable, "-m", "rca", str(path), *([form] if form else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout
        assert run.stderr
        run.stdout.close()  # as `| head` does when it has seen enough
        said = run.stderr.read().decode()
        assert (run.wait(), said) == (141, "")


def test_clocks_are_told_as_the_page_tells_them_and_how_well_they_are_known() -> None:
    found = diagnose(make_window(nic_down=3), Symptom(SymptomKind.FAILURE, "job", 1, 1, 2, 0, (), ""))
    clocks = (NodeClock("node1", 9_700, 700_000), NodeClock("node0", -6_000, 700_000))
    assert "Clocks of 2 nodes agree: apart by 0.0157 ms at most, known to ±0.7 ms." in text(
        replace(found, clocks=clocks)
    )


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("rank", "rank 4", "rank 4"),
        ("rank", "ranks 4 and 5", "ranks 4 and 5"),
        ("gpu", "rank 4", "GPU rank 4"),
        ("nic", "rank 4", "NIC rank 4"),
        ("nic", "nic0 of node1", "nic0 of node1"),
        ("node", "node1", "node1"),
        ("node", "gx-17", "node gx-17"),
        ("link", "link 3–4", "link 3–4"),
        ("process", "rank 4", "rank 4"),
    ],
)
def test_a_subject_says_once_what_it_is(kind: str, name: str, words: str) -> None:
    assert subject_words(Subject(kind, name)) == words
