"""The command on files that the shim wrote, and on damaged ones."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nccl_instrument.verbs.__main__ import main
from nccl_instrument.verbs.reading import BadVerbsFile, blocks
from tests.nccl_instrument.verbs.conftest import Built


def written(built: Built, folder: Path, scenario: str) -> Path:
    assert built.run(scenario, folder).returncode == 0
    (path,) = folder.iterdir()
    return path


def test_a_good_connection(built: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(written(built, tmp_path, "plain"))]) == 0
    text = capsys.readouterr().out
    assert "mlx5_0, 1 queue pairs; lost 0 bytes" in text
    assert (
        "0x000100 → 10.0.0.2 0x000777: 21,088 bytes in 22 requests, 11 completed, 0 received, 2 posts refused" in text
    )


def test_a_failed_one_says_with_what(built: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(written(built, tmp_path, "failing"))]) == 1
    assert "1 FAILED (status 12, vendor 0x81), 2 flushed" in capsys.readouterr().out


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(500))
    assert main([str(tmp_path / "a.bin")]) == main([str(tmp_path / "none.bin")]) == 2
    assert capsys.readouterr().err.startswith(
        "a.bin: the file is damaged, or of another version of the shim, at byte 0\n"
    )


@pytest.fixture(scope="module")
def good(built: Built, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return written(built, tmp_path_factory.mktemp("good"), "plain").read_bytes()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changed=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=8))
def test_changed_bytes_end_in_an_answer_or_an_error(
    good: bytes, tmp_path: Path, changed: list[tuple[int, int]]
) -> None:
    found = bytearray(good)
    for at, value in changed:
        found[at % len(found)] = value
    (tmp_path / "changed.bin").write_bytes(found)
    with suppress(BadVerbsFile):
        for one in blocks(tmp_path / "changed.bin"):
            assert one.flows["n_cells"].sum() == len(one.cells)
