"""The shim sees every queue pair of a caller that knows nothing of it, and never changes what the caller gets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nccl_instrument.verbs.reading import BadVerbsFile, Block, blocks, peer
from tests.nccl_instrument.verbs.conftest import Built, build


def last_of(folder: Path) -> tuple[list[Block], np.ndarray]:
    """All blocks, and the queue pairs as the last one has them."""
    (path,) = folder.iterdir()
    found = list(blocks(path))
    return found, found[-1].queue_pairs


def measured(found: list[Block]) -> tuple[int, int]:
    """Exact bytes of all flows, and those in epochs."""
    in_epochs = sum(int(one.cells["units"].sum()) * int(one.head["unit_bytes"]) for one in found)
    return sum(int(one.flows["bytes"].sum()) for one in found), in_epochs


def test_the_library_without_hardware_works_alone(built: Built) -> None:
    assert built.run("plain", None, with_shim=False).returncode == 0


@pytest.mark.parametrize("scenario", ["plain", "failing", "threads", "fork"])
def test_without_a_folder_everything_goes_through_and_nothing_is_written(built: Built, scenario: str) -> None:
    done = built.run(scenario, None)
    assert done.returncode == 0, done.stderr


def test_work_requests_and_completions_by_queue_pair_and_whom_it_leads_to(built: Built, tmp_path: Path) -> None:
    done = built.run("plain", tmp_path)
    assert done.returncode == 0, done.stderr
    found, (qp,) = last_of(tmp_path)
    assert found[-1].head["name"] == b"mlx5_0"
    assert (qp["qpn"], qp["dest_qpn"], qp["connects"], peer(qp)) == (0x100, 0x777, 1, "10.0.0.2")
    # Ten pairs of 1,008 and 1,000 bytes, a read, and the first of a pair whose second was refused.
    assert (qp["work_requests"], qp["signaled"], qp["completions"], qp["refused"]) == (22, 11, 11, 2)
    assert qp["bytes"] == 10 * 2008 + 1008
    assert measured(found) == (qp["bytes"], qp["bytes"] // 32 * 32)


def test_an_error_is_told_from_what_it_flushes(built: Built, tmp_path: Path) -> None:
    assert built.run("failing", tmp_path).returncode == 0
    _, (qp,) = last_of(tmp_path)
    assert (qp["errors"], qp["flushed"], qp["completions"], qp["received"]) == (1, 2, 0, 0)
    assert (qp["last_status"], qp["last_vendor_err"]) == (12, 0x81)
    assert qp["last_error_ns"] > 0


def test_bytes_of_a_request_that_took_longer_than_what_is_held_lie_in_what_is_left_to_the_byte(
    built: Built, tmp_path: Path
) -> None:
    done = built.run("stalled", tmp_path)
    assert done.returncode == 0, done.stderr
    found, _ = last_of(tmp_path)
    assert measured(found) == (1_000_000_000, 1_000_000_000)
    units = np.concatenate([block.cells["units"] for block in found])
    assert units.max() * 32 > 1_000_000 and len(units) > 1_000  # what came before in one epoch, the rest epoch by epoch


def test_threads_lose_no_byte(built: Built, tmp_path: Path) -> None:
    assert built.run("threads", tmp_path).returncode == 0
    found, qps = last_of(tmp_path)
    assert qps["work_requests"].tolist() == qps["completions"].tolist() == [20_000] * 4
    assert measured(found) == (4 * 20_000 * 4096, 4 * 20_000 * 4096)
    assert found[-1].head["lost_bytes"] == found[-1].head["blocks_lost"] == 0


def test_threads_that_share_a_queue_pair_lose_no_byte(built: Built, tmp_path: Path) -> None:
    assert built.run("shared", tmp_path).returncode == 0
    found, (qp,) = last_of(tmp_path)
    assert (qp["work_requests"], qp["completions"]) == (80_000, 80_000)
    assert measured(found) == (80_000 * 4096, 80_000 * 4096)


def test_queue_pairs_beyond_the_limit_are_counted(built: Built, tmp_path: Path) -> None:
    done = built.run("many", tmp_path)
    assert done.returncode == 0, done.stderr
    found, qps = last_of(tmp_path)
    assert (len(qps), qps["bytes"].sum()) == (4096, 409_600)
    assert (found[-1].head["lost_bytes"], found[-1].head["qps_refused"] > 0) == (90_400, True)


def test_a_forked_child_goes_through_uncounted(built: Built, tmp_path: Path) -> None:
    done = built.run("fork", tmp_path)
    assert done.returncode == 0, done.stderr
    _, qps = last_of(tmp_path)
    assert len(qps) == 0


def test_a_folder_that_cannot_be_written_costs_the_job_nothing(built: Built, tmp_path: Path) -> None:
    assert built.run("plain", tmp_path / "none").returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_read_to_its_last_whole_block_and_a_damaged_one_refused(built: Built, tmp_path: Path) -> None:
    built.run("plain", tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert len(list(blocks(path))) == whole.count(b"DGV3") - 1
    path.write_bytes(b"\xff" * 200)
    with pytest.raises(BadVerbsFile, match=r"damaged.* at byte 0"):
        list(blocks(path))


@pytest.mark.sanitizer
@pytest.mark.parametrize("target, flags", [("asan", "address,undefined"), ("tsan", "thread")])
@pytest.mark.parametrize("scenario", ["plain", "failing", "threads", "shared"])
def test_clean_under_sanitizers(tmp_path: Path, target: str, flags: str, scenario: str) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "out").mkdir()
    done = build(tmp_path / "lib", target, (f"-fsanitize={flags}",)).run(scenario, tmp_path / "out")
    assert done.returncode == 0, done.stderr
