"""The calls a plugin gets: NCCL's types, parents, states and order, from the right threads, in every version."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.nccl_instrument.testbed.jobs import Recording, Started, read_recording, run_job, running_job, wait_until

GROUP, COLL, P2P, PROXY_OP, PROXY_STEP, GROUP_API, COLL_API, P2P_API = 1, 2, 4, 8, 16, 256, 512, 1024
SEND_GPU_WAIT, SEND_WAIT, RECV_WAIT, RECV_FLUSH_WAIT, RECV_GPU_WAIT = 8, 9, 10, 11, 12
IN_PROGRESS, SEND_PEER_WAIT, GROUP_START_API_STOP, GROUP_END_API_START = 19, 20, 23, 24
N_ITERATIONS = 2


def record_job(folder: Path, recorder: Path, *words: str) -> dict[int, Recording]:
    done = run_job(
        folder / "run",
        "--plugin",
        str(recorder),
        "--iterations",
        str(N_ITERATIONS),
        *words,
        RECORDER_FOLDER=str(folder),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {rank: read_recording(folder / f"{rank}.calls") for rank in range(8)}


@pytest.fixture(scope="module")
def recordings(engine: Path, recorder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Recording]:
    return record_job(tmp_path_factory.mktemp("calls"), recorder)


def is_send(op: Started) -> bool:
    return op.fields[4] == "1"


def test_each_communicator_is_initialised_and_finalized_once(recordings: dict[int, Recording]) -> None:
    for rank, recording in recordings.items():
        described = {name: (int(n_nodes), int(n)) for name, _, n_nodes, n, _ in recording.communicators.values()}
        kinds = {name.split("_")[0]: shape for name, shape in described.items()}
        assert kinds == {"world": (4, 8), "tp": (1, 2), "dp": (2, 2), "pp": (2, 2)}, rank
        assert sorted(recording.finalized) == sorted(recording.communicators)


def test_members_agree_on_the_communicators_id(recordings: dict[int, Recording]) -> None:
    ids: dict[str, set[str]] = {}
    for recording in recordings.values():
        for name, comm_id, *_ in recording.communicators.values():
            ids.setdefault(name, set()).add(comm_id)
    assert all(len(found) == 1 for found in ids.values())


def test_everything_started_is_stopped_in_a_job_that_ends(recordings: dict[int, Recording]) -> None:
    for recording in recordings.values():
        assert [s for s in recording.started.values() if not s.is_stopped] == []


def test_api_calls_come_before_the_op_that_names_them_as_parent(recordings: dict[int, Recording]) -> None:
    recording = recordings[0]
    for op in recording.of_type(COLL) + recording.of_type(P2P):
        api = recording.started[op.parent]
        group_api = recording.started[api.parent]
        assert api.type == (COLL_API if op.type == COLL else P2P_API)
        assert group_api.type == GROUP_API
        assert group_api.place < api.place < api.stop_place < op.place < op.stop_place < group_api.stop_place
        assert [state for state, _ in group_api.states] == [GROUP_START_API_STOP, GROUP_END_API_START]
        assert op.thread == api.thread


def test_one_group_lies_around_each_op(recordings: dict[int, Recording]) -> None:
    recording = recordings[0]
    ops = recording.of_type(COLL) + recording.of_type(P2P)
    groups = recording.of_type(GROUP)
    assert len(groups) == len(ops)
    for op in ops:
        assert any(group.place < op.place < op.stop_place < group.stop_place for group in groups)


def test_ops_inside_the_node_have_no_proxy_ops_and_the_others_have(recordings: dict[int, Recording]) -> None:
    recording = recordings[0]
    for op in recording.of_type(COLL) + recording.of_type(P2P):
        name = recording.communicators[op.context][0]
        assert bool(recording.children(op, PROXY_OP)) == (not name.startswith("tp")), (name, op.fields)


def test_ring_runs_both_ways_over_two_channels(recordings: dict[int, Recording]) -> None:
    """Rank 1 sends to rank 2 on channel 0 and receives from it on channel 1; inside the node there is no network."""
    recording = recordings[1]
    ops = [op for op in recording.of_type(COLL) if recording.communicators[op.context][0] == "world"]
    flows = {(int(p.fields[1]), int(p.fields[2]), is_send(p)) for op in ops for p in recording.children(op, PROXY_OP)}
    assert flows == {(0, 2, True), (1, 2, False)}


def test_proxy_ops_carry_own_pid_and_run_on_another_thread(recordings: dict[int, Recording]) -> None:
    recording = recordings[0]
    api_threads = {s.thread for s in recording.of_type(COLL)}
    proxy_threads = {s.thread for s in recording.of_type(PROXY_OP) + recording.of_type(PROXY_STEP)}
    assert len(api_threads) == len(proxy_threads) == 1 and api_threads.isdisjoint(proxy_threads)
    assert all(op.fields[0] == "1" for op in recording.of_type(PROXY_OP))


def test_announced_steps_all_happen_in_order(recordings: dict[int, Recording]) -> None:
    for recording in recordings.values():
        steps: dict[int, list[int]] = {}
        for step in recording.of_type(PROXY_STEP):
            steps.setdefault(step.parent, []).append(int(step.fields[0]))
        for op in recording.of_type(PROXY_OP):
            assert [state for state, _ in op.states] == [IN_PROGRESS]
            in_order = sorted(set(steps[op.handle]))
            assert in_order == list(range(int(op.fields[3])))
            assert steps[op.handle] == sorted(steps[op.handle])


def test_send_steps_pass_through_gpu_wait_peer_wait_and_wait(recordings: dict[int, Recording]) -> None:
    recording = recordings[2]
    for op in filter(is_send, recording.of_type(PROXY_OP)):
        for step in recording.children(op, PROXY_STEP):
            states = [state for state, _ in step.states]
            polls = states.count(SEND_PEER_WAIT)
            assert polls >= 1
            assert states == [SEND_GPU_WAIT, *[SEND_PEER_WAIT] * polls, SEND_WAIT]
            assert 0 < step.states[-1][1] <= 65536


def test_receive_steps_pass_through_wait_flush_and_gpu_wait(recordings: dict[int, Recording]) -> None:
    recording = recordings[2]
    for op in recording.of_type(PROXY_OP):
        if is_send(op):
            continue
        for step in recording.children(op, PROXY_STEP):
            assert [state for state, _ in step.states] == [RECV_WAIT, RECV_FLUSH_WAIT, RECV_GPU_WAIT]


def test_no_more_steps_are_in_flight_than_there_are_buffers(recordings: dict[int, Recording]) -> None:
    recording = recordings[3]
    for op in recording.of_type(PROXY_OP):
        steps = recording.children(op, PROXY_STEP)
        for step in steps:
            in_flight = [s for s in steps if s.place <= step.place < s.stop_place]
            assert len(in_flight) <= 8


def wire_bytes(recording: Recording, op: Started) -> int:
    sends = filter(is_send, recording.children(op, PROXY_OP))
    return sum(step.states[-1][1] for p in sends for step in recording.children(p, PROXY_STEP))


def test_bytes_sent_are_those_of_the_ring_algorithm(recordings: dict[int, Recording]) -> None:
    """n = 2, so AllGather and ReduceScatter send one block each; a p2p sends all of it."""
    recording = recordings[0]
    expected = {"ReduceScatter": 256 * 1024 // 2, "AllGather": 256 * 1024 // 2, "Send": 128 * 1024, "Recv": 0}
    for op in recording.of_type(COLL) + recording.of_type(P2P):
        if op.fields[0] in expected:
            assert wire_bytes(recording, op) == expected[op.fields[0]]


def test_sequence_numbers_count_per_communicator_and_function(recordings: dict[int, Recording]) -> None:
    recording = recordings[0]
    found: dict[tuple[int, str], list[int]] = {}
    for op in recording.of_type(COLL):
        found.setdefault((op.context, op.fields[0]), []).append(int(op.fields[1]))
    assert {kind for _, kind in found} == {"Broadcast", "AllReduce", "ReduceScatter", "AllGather"}
    assert all(numbers == list(range(len(numbers))) for numbers in found.values())


def test_a_step_of_training_has_the_ops_of_hybrid_parallelism(recordings: dict[int, Recording]) -> None:
    recording = recordings[0]
    counts = Counter(op.fields[0] for op in recording.of_type(COLL) + recording.of_type(P2P))
    per_step = {"AllReduce": 4 + 1, "ReduceScatter": 2, "AllGather": 1, "Send": 2, "Recv": 2}
    assert counts == {name: n * N_ITERATIONS for name, n in per_step.items()} | {"Broadcast": 1}


@pytest.mark.parametrize("version", ["3", "4", "6", "7"])
def test_other_versions_of_the_interface_get_the_same_story(
    engine: Path, recorder: Path, tmp_path: Path, version: str
) -> None:
    recordings = record_job(tmp_path, recorder, "--profiler-version", version, "--links", "paced")
    recording = recordings[0]
    assert all(s.is_stopped for s in recording.started.values())
    colls = {op.fields[0]: op.fields[3:] for op in recording.of_type(COLL)}
    assert colls["ReduceScatter"] == ["ncclFloat32", "2", "RING", "SIMPLE"]
    assert colls["AllGather"][0] == "ncclInt8"
    parent_types = {recording.started[op.parent].type for op in recording.of_type(COLL)}
    assert parent_types == ({GROUP} if version in "34" else {COLL_API})
    op_states = {state for op in recording.of_type(PROXY_OP) for state, _ in op.states}
    assert op_states == (set(range(8)) if version == "3" else {IN_PROGRESS})


def test_a_plugin_that_wants_no_steps_gets_none(engine: Path, recorder: Path, tmp_path: Path) -> None:
    done = run_job(
        tmp_path / "run",
        "--plugin",
        str(recorder),
        "--iterations",
        "1",
        RECORDER_FOLDER=str(tmp_path),
        RECORDER_MASK="2",
    )
    assert done.returncode == 0
    types = {s.type for s in read_recording(tmp_path / "0.calls").started.values()}
    assert types == {GROUP, COLL, GROUP_API, COLL_API}


def unfinished_sends(folder: Path) -> list[tuple[Recording, Started]]:
    """Rank 0's sends to the next stage that have begun and not ended."""
    recording = read_recording(folder / "0.calls")
    ops = [p for p in recording.of_type(PROXY_OP) if is_send(p) and not p.is_stopped and p.states]
    return [(recording, op) for op in ops if recording.started[op.parent].type == P2P]


def is_in_mid_send(folder: Path) -> bool:
    sends = unfinished_sends(folder)
    return bool(sends) and all(
        8 <= len([s for s in recording.children(op, PROXY_STEP) if s.is_stopped]) <= 16 for recording, op in sends
    )


def first_unfinished_states(recording: Recording, op: Started) -> list[int]:
    steps = [step for step in recording.children(op, PROXY_STEP) if not step.is_stopped]
    return [state for state, _ in steps[0].states]


@pytest.mark.parametrize(
    ("transport", "fault", "ending"),
    [
        # IB: a sleeping receiver gives no credits; a frozen one's NIC still acknowledges what was let through.
        ("IB", "proxy_sleep", SEND_PEER_WAIT),
        ("IB", "rank_frozen", SEND_PEER_WAIT),
        # A dead link swallows what was let through.
        ("IB", "nic_down", SEND_WAIT),
        # Socket takes a send at once, whoever sleeps.
        ("Socket", "proxy_sleep", SEND_WAIT),
    ],
)
def test_where_a_sender_stops_depends_on_transport_and_fault(
    engine: Path, recorder: Path, tmp_path: Path, transport: str, fault: str, ending: int
) -> None:
    """Stage 0 sends 128 slices per channel to stage 1, which is hit in the middle of it, also when the machine is busy."""
    words = ["--tp", "1", "--pp", "2", "--dp", "1", "--ranks-per-node", "1", "--pp-kib", "16384"]
    words += ["--microbatches", "1", "--transport", transport, "--plugin", str(recorder)]
    with running_job(tmp_path / "run", *words, RECORDER_FOLDER=str(tmp_path)) as job:
        wait_until(lambda: is_in_mid_send(tmp_path), "stage 0 does not send")
        job.ask("inject", fault=fault, rank=1)
        job.hangs()
        endings = [first_unfinished_states(*send)[-1] for send in unfinished_sends(tmp_path)]
    assert endings == [ending] * 2
