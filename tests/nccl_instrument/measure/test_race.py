"""Threads that post never wait for a poll, and what they hand over to it is taken once: under sanitizers too."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nccl_instrument.measure.meter import LIBRARY

SOURCES = sorted((LIBRARY.parents[1] / "src").glob("*.c"))
N_POSTS, N_BYTES, N_QPS, UNIT = 3 * 20_000, 100, 128, 32


def run(folder: Path, *flags: str) -> list[int]:
    """Bytes taken, transfers counted, bytes lost, bytes in cells."""
    program = folder / "race"
    include = f"-I{SOURCES[0].parent}"
    words = ["gcc", "-std=c11", "-g", *flags, "-pthread", include, "-o", program, Path(__file__).with_name("race.c")]
    subprocess.run([*words, *SOURCES], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return [int(number) for number in done.stdout.split()]


def test_every_byte_is_taken_once_while_polls_never_pause(tmp_path: Path) -> None:
    *counted, in_cells = run(tmp_path, "-O2")
    assert counted == [N_POSTS * N_BYTES, N_POSTS, 0]
    assert N_POSTS * N_BYTES - N_QPS * UNIT < in_cells <= N_POSTS * N_BYTES


@pytest.mark.sanitizer
@pytest.mark.parametrize("flags", ["-fsanitize=thread", "-fsanitize=address,undefined"])
def test_clean_under_sanitizers(tmp_path: Path, flags: str) -> None:
    taken, transfers, lost, _ = run(tmp_path, "-O1", flags, "-fno-sanitize-recover=all")
    assert (taken + lost, transfers) == (N_POSTS * N_BYTES, N_POSTS)


def test_who_posts_calls_nothing_that_waits_or_allocates() -> None:
    """Locks that wait are taken by `lock`, which polls and counts alone call."""
    text = (LIBRARY.parents[1] / "src" / "posting.c").read_text()
    posting = text[: text.index("void dgm_enter_handed")]
    assert "void dgm_transfers(" in posting
    assert not [word for word in (" lock(&", "malloc", "calloc", "sched_yield", "mmap") if word in posting]
