"""One diagnosis of traces and dumps: who leads, what the best sentence says, what is missing, what explains an idle job."""

from __future__ import annotations

import pickle
import zlib
from dataclasses import replace

import pytest

from nccl_instrument.dumps import NO_PYTHON, Arrived, Silent
from nccl_instrument.dumps import RECORDER as RECORDER_KIND
from nccl_instrument.recorder import ANSWERED
from rca.advice import without_python
from rca.dumps import dump_parts
from rca.dumps.dumped import Dumped, dumped_of, with_dumps
from rca.dumps.dumped_view import views_of
from rca.findings import (
    Component,
    Diagnosis,
    Evidence,
    FaultKind,
    Finding,
    Grade,
    Subject,
    Symptom,
    SymptomKind,
    WaitEdge,
    diagnosis_from_json,
    to_json,
)
from rca.stacks.analysis import doing_of
from rca.stacks.idle import benign_of
from rca.stacks.process import MAIN_THREAD, Frame, Process, Stack, Thread
from rca.words import NOTHING_TO_EXPLAIN
from tests.rca.flight_recorder.real import dumps_of
from tests.rca.flight_recorder.test_analysis import dump
from tests.rca.flight_recorder.test_p2p import Ring
from tests.rca.stacks.real import raw_dumps

WAIT: Stack = (Frame("all_reduce", "torch/distributed/distributed_c10d.py", 3252), Frame("train", "train.py", 9))
LOAD: Stack = (Frame("D.__getitem__", "dataset.py", 41), Frame("train", "train.py", 7))
SAVE: Stack = (Frame("_save", "torch/serialization.py", 900), Frame("save_checkpoint", "train.py", 30))
CODE: Stack = (Frame("tokenize", "/srv/job/text.py", 3), Frame("train", "train.py", 8))
EVALUATE: Stack = (Frame("forward", "model.py", 3), Frame("evaluate", "train.py", 80))


def arrived(kind: str, rank: int, raw: bytes = b"", silent: str = "", look: int = 1, pid: int = 0) -> Arrived:
    return Arrived(
        kind,
        rank,
        pid or 100 + rank,
        0,
        "python train.py",
        1_000,
        silent,
        "",
        len(raw),
        zlib.compress(raw),
        node="n0",
        look=look,
    )


def looked(*stacks: Stack, twice: bool = True) -> Dumped:
    """Trainers with these stacks, rank by rank, at one or at two looks."""
    those = tuple(Process(rank, 100 + rank, "python", (Thread(MAIN_THREAD, one),)) for rank, one in enumerate(stacks))
    return Dumped(those, those if twice else (), asked=frozenset({"stacks"}))


def of_traces(
    culprits: tuple[int, ...], component: Component = Component.SOFTWARE, kind: SymptomKind = SymptomKind.FAILURE
) -> Diagnosis:
    """What the collective layer says: these ranks have not entered op 17 of tp0, or a part of theirs is broken."""
    symptom = Symptom(kind, "job", 0, 1, 2, 0, (), "No op has completed for 2.0 s.")
    finding = Finding(
        rule="hang", version=3, subject=Subject("rank", "rank", culprits), component=component,
        kind=FaultKind.COMPUTATION_FAIL_STOP, culprits=culprits, score=0.9, grade=Grade.STRONG,
        sentence=f"Of {culprits} the traces say something.",
    )  # fmt: skip
    victims = tuple(rank for rank in range(4) if rank not in culprits)
    path = tuple(WaitEdge(rank, culprits[0], 170, 17, "rank has not entered the op") for rank in victims if culprits)
    return Diagnosis(
        symptom=symptom, findings=(finding,) if culprits else (), victims=victims if culprits else (), path=path,
        communicators={"170": "tp0"}, missing=(), downgraded=(), thresholds={}, analysed_ns=2,
    )  # fmt: skip


def test_the_traces_say_which_op_and_the_stack_says_where_the_rank_is_instead() -> None:
    found = with_dumps(of_traces((2,)), looked(WAIT, WAIT, LOAD, WAIT))
    assert found.verdict == (
        "Rank 2 is in the data loader, D.__getitem__ (dataset.py:41), and does not move, and has not entered op 17 of tp0; "
        "3 ranks wait for it."
    )
    assert (found.layer, found.culprits, found.victims) == ("data loader", (2,), (0, 1, 3))
    assert any(said.startswith("Collective layer, same culprit") for said in found.agreement)


def test_a_data_loader_is_called_although_the_collective_layer_blames_somebody_else() -> None:
    found = with_dumps(of_traces((0,), Component.NIC), looked(WAIT, WAIT, LOAD, WAIT))
    assert (found.layer, found.culprits, found.victims) == ("data loader", (2,), (0, 1, 3))
    assert any(said.startswith("Collective layer, disagrees") for said in found.agreement)


def test_code_of_its_own_seen_once_does_not_outdo_what_the_traces_saw() -> None:
    found = with_dumps(of_traces((0,), Component.NIC), looked(WAIT, WAIT, CODE, WAIT, twice=False))
    assert (found.layer, found.culprits) == ("collective", (0,))


ITEM: Stack = (Frame("log_loss", "train.py", 88), Frame("train", "train.py", 8))  # float(loss): a wait for the GPU
JOIN: Stack = (Frame("Thread.join", "threading.py", 1060), Frame("finish_async_save", "train.py", 9))
BATCH: Stack = (Frame("_try_get_data", "torch/utils/data/dataloader.py", 1100), Frame("train", "train.py", 8))


def graded(found: Diagnosis, grade: Grade, *evidence: Evidence) -> Diagnosis:
    return replace(found, findings=(replace(found.findings[0], grade=grade, evidence=evidence),))


@pytest.mark.parametrize("component", [Component.NIC, Component.PROCESS, Component.GPU])
def test_code_that_does_not_move_may_wait_for_the_gpu_and_does_not_outdo_what_the_traces_saw(
    component: Component,
) -> None:
    traces = graded(of_traces((0,), component), Grade.MODERATE)
    assert with_dumps(traces, looked(WAIT, WAIT, ITEM, ITEM)).culprits == (0,)
    alone = with_dumps(of_traces(()), looked(WAIT, WAIT, ITEM, WAIT)).findings[0]
    assert (alone.culprits, alone.grade) == ((2,), Grade.WEAK)


def test_code_of_a_rank_that_the_traces_or_the_recorder_miss_in_an_op_is_told_of_it() -> None:
    traces = graded(of_traces((2,)), Grade.MODERATE)
    best = with_dumps(traces, looked(WAIT, WAIT, CODE, WAIT)).findings[0]
    assert (best.rule, best.culprits, best.grade) == ("stacks", (2,), Grade.STRONG)
    recording = dumped_of(arrived("recorder", rank, raw) for rank, (_, raw) in enumerate(dumps_of("loader"))).recording
    found = with_dumps(of_traces(()), replace(looked(WAIT, WAIT, CODE, WAIT), recording=recording), has_traces=False)
    assert (found.culprits, found.findings[0].grade) == ((2,), Grade.STRONG)
    assert "text.py" in found.verdict


@pytest.mark.parametrize("stack", [JOIN, BATCH, ITEM])
@pytest.mark.parametrize("grade", [Grade.STRONG, Grade.MODERATE])
def test_a_port_that_was_seen_down_is_named_before_ranks_that_wait_for_a_lock_or_for_data(
    stack: Stack, grade: Grade
) -> None:
    traces = of_traces((0,), Component.NIC)
    down = graded(traces, grade, Evidence("port of mlx5_0", "down", "", "nic", 0))
    found = with_dumps(down, looked(WAIT, WAIT, stack, WAIT))
    assert (found.culprits, found.layer) == ((0,), "collective")
    assert any(said.startswith("Stacks, disagrees") for said in found.agreement)
    saved = with_dumps(down, looked(WAIT, WAIT, SAVE, WAIT))
    assert (saved.culprits, saved.layer) == ((2,), "checkpoint")


def test_a_recorder_that_knows_no_members_tells_of_no_layer() -> None:
    ring = Ring(1, "[]", ("0", "default_pg")).one("recv 1<-0", is_over=False)
    recording = dumped_of([arrived("recorder", 1, ring.dump()[1])]).recording
    found = with_dumps(of_traces(()), Dumped(recording=recording, asked=frozenset({"flight recorder"})))
    assert (found.culprits, found.layer) == ((), "")


def test_where_all_wait_the_collective_layer_leads_and_stacks_say_nobody_stands_out() -> None:
    found = with_dumps(of_traces((1,), Component.NIC), looked(WAIT, WAIT, WAIT, WAIT))
    assert (found.layer, found.culprits) == ("collective", (1,))
    assert "Stacks: nobody stands out." in found.agreement


def test_when_every_source_is_silent_the_trouble_is_below() -> None:
    found = with_dumps(of_traces(()), looked(WAIT, WAIT, WAIT))
    assert (found.layer, found.findings) == ("below", ())


def test_without_stacks_the_layer_of_who_has_not_entered_is_out_of_sync_or_not_known() -> None:
    silent = dumped_of([arrived("stacks", rank, silent="py-spy is not installed on this node") for rank in range(4)])
    found = with_dumps(of_traces((2,)), silent)
    assert "No stacks: py-spy is not installed on this node." in found.agreement
    assert "No stacks of ranks 0–3: py-spy is not installed on this node." in found.missing
    assert (found.culprits, found.layer) == ((2,), "out of sync")


def test_with_stacks_alone_those_whose_stacks_wait_are_the_victims() -> None:
    nothing = replace(of_traces(()), victims=())
    found = with_dumps(nothing, looked(WAIT, WAIT, LOAD, CODE), has_traces=False)
    assert (found.culprits, found.victims) == ((2,), (0, 1))


def test_a_known_place_tells_although_most_ranks_are_in_code_we_do_not_know() -> None:
    step: Stack = (Frame("forward_step", "megatron/schedules.py", 9), Frame("train", "train.py", 8))
    found = with_dumps(of_traces(()), looked(WAIT, LOAD, step, step, step, step))
    assert (found.culprits, found.layer) == ((1,), "data loader")


def test_what_nodes_send_is_read_and_fused_with_the_recorder_of_a_job_without_traces() -> None:
    moved = {0: 0, 1: 2, 2: 1, 3: 3}  # the stacks' rank 1 is the recorder's rank 2
    parts = [arrived("recorder", int(name.rsplit("-", 1)[-1]), raw) for name, raw in dumps_of("loader")]
    for name, raw in raw_dumps().items():
        if name.endswith(".json"):
            rank, pid, look = name[1:-5].split("_")
            parts.append(arrived("stacks", moved[int(rank)], raw, look=int(look), pid=int(pid)))
    found = with_dumps(of_traces(()), dumped_of(parts), has_traces=False)
    assert (found.culprits, found.victims, found.layer) == ((2,), (0, 1, 3), "data loader")
    assert "has not entered op" in found.verdict
    assert "No collective layer: this job has no traces." in found.agreement
    assert diagnosis_from_json(to_json(found)) == found


def test_parts_that_cannot_be_read_are_told_and_those_of_unknown_ranks_blame_nobody() -> None:
    dumped = dumped_of(
        [arrived("stacks", 0, b"{}"), arrived("recorder", 1, b"\x80nonsense"), arrived("recorder", -1, b"\x80\x04}.")]
    )
    found = with_dumps(of_traces(()), dumped)
    assert found.findings == ()
    assert "py-spy's answer cannot be read" in str(found.missing)
    assert "nobody knows which rank it is of" in str(found.missing)
    assert "not a complete pickle" in str(found.missing)


def test_a_checkpoint_or_an_evaluation_explains_an_idle_job_and_a_data_loader_does_not() -> None:
    for stacks, said in (
        ((SAVE, WAIT, WAIT), "rank 0 is saving a checkpoint; the other 2 wait for that"),
        ((EVALUATE, EVALUATE), "ranks 0 and 1 are evaluating"),
        ((LOAD, LOAD), ""),
        ((SAVE, LOAD), ""),
        ((WAIT, WAIT), ""),
    ):
        benign = benign_of(doing_of(looked(*stacks).first))
        assert said in benign and bool(said) == bool(benign)


def test_of_an_idle_job_the_stacks_say_where_everybody_is_and_blame_nobody() -> None:
    idle = replace(of_traces((), kind=SymptomKind.IDLE))
    found = with_dumps(idle, looked(LOAD, LOAD, LOAD))
    assert (found.culprits, found.layer) == ((), "data loader")
    assert found.verdict.startswith("No op is in flight anywhere: ranks 0–2 are in the data loader")


def test_of_a_job_that_goes_on_dumps_name_nobody_and_say_what_the_culprit_was_doing() -> None:
    slow = of_traces((1,), Component.NIC, SymptomKind.STRAGGLER)
    found = with_dumps(slow, looked(WAIT, CODE, LOAD, WAIT))
    assert (found.culprits, found.victims, found.verdict) == ((1,), slow.victims, slow.verdict)
    assert "text.py" in str(found.findings[0].evidence)
    unexplained = replace(of_traces((), kind=SymptomKind.EXTERNAL), missing=(NOTHING_TO_EXPLAIN,))
    assert with_dumps(unexplained, looked(WAIT, CODE, LOAD, WAIT)).findings == ()


def test_a_rank_that_is_in_no_op_but_waits_by_its_stack_is_not_blamed_before_one_that_works() -> None:
    receives: Stack = (Frame("recv", "torch/distributed/distributed_c10d.py", 2700), Frame("train", "train.py", 9))
    recording = dumped_of(arrived("recorder", rank, raw) for rank, (_, raw) in enumerate(dumps_of("loader"))).recording
    nothing = replace(of_traces(()), path=())
    alone = with_dumps(nothing, replace(looked(WAIT, WAIT, receives, WAIT), recording=recording), has_traces=False)
    assert (alone.culprits, alone.findings[0].grade) == ((2,), Grade.WEAK)
    other = with_dumps(nothing, replace(looked(WAIT, CODE, receives, WAIT), recording=recording), has_traces=False)
    assert other.culprits == (1,)


def test_recordings_beyond_what_can_be_read_in_time_are_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [arrived("recorder", int(name.rsplit("-", 1)[-1]), raw) for name, raw in dumps_of("loader")]
    monkeypatch.setattr(dump_parts, "RECORDINGS_BYTES_MAX", parts[0].length + parts[1].length)
    read = dumped_of(parts)
    assert read.recording is not None and read.recording.ranks == (0, 1)
    assert [(one.rank, one.why[:8]) for one in read.silent] == [(2, "not read"), (3, "not read")]


def test_of_a_process_that_is_stopped_the_stack_only_says_where() -> None:
    found = with_dumps(of_traces((1,), Component.PROCESS), looked(WAIT, CODE, WAIT, WAIT))
    assert (found.verdict, found.layer) == ("Of (1,) the traces say something.", "below")
    assert "text.py" in str(found.findings[0].evidence)


STUCK = ("g", 20, "all_reduce", False)


def in_one_op(*ranks: int, members: str) -> list[Arrived]:
    """Recordings of ranks that are all in the same op, of a group whose dumps say these members ('[]': they do not)."""
    return [arrived("recorder", rank, dump(rank, STUCK, ranks=members)[1]) for rank in ranks]


@pytest.mark.parametrize("members", ["[]", "[0, 1, 2, 3]"])
@pytest.mark.parametrize("is_refused", [True, False])
def test_a_rank_of_which_nothing_can_be_read_is_unknown_neither_in_the_op_nor_to_blame(
    members: str, is_refused: bool
) -> None:
    parts = in_one_op(0, 1, 3, members=members)
    parts += [arrived("recorder", 2, b"\x80nonsense")] if is_refused else []
    nodes = {rank: "n1" if rank == 2 and not is_refused else "n0" for rank in range(4)}
    found = with_dumps(of_traces(()), dumped_of(parts, {"recorder": nodes}), has_traces=False)
    best = found.findings[0]
    assert (found.culprits, found.layer, [one.ranks for one in best.tied]) == ((), "", [(2,)])
    why = "its dump cannot be read: it is not a complete pickle" if is_refused else "its node has not answered"
    assert best.sentence.startswith(f"Nothing is known of rank 2 ({why}")
    assert "All members have entered" not in str(found.findings)


def test_a_rank_that_was_asked_and_did_not_answer_itself_is_still_named() -> None:
    parts = [*in_one_op(0, 1, 3, members="[]"), arrived("recorder", 2, silent="no answer within the time")]
    found = with_dumps(of_traces(()), dumped_of(parts), has_traces=False)
    assert (found.culprits, found.layer) == ((2,), "out of sync")


def test_ranks_that_were_asked_and_of_which_nothing_came_are_silent_with_their_node() -> None:
    roster = {"stacks": {0: "n0", 1: "n0", 2: "n1"}}
    silent = dumped_of([arrived("stacks", 0, b"[]")], roster).silent
    assert [(one.rank, one.node, one.why) for one in silent] == [
        (1, "n0", "its node answered without it"), (2, "n1", "its node has not answered"),
    ]  # fmt: skip


def test_stacks_of_few_of_the_ranks_explain_nothing_and_say_nothing_of_all() -> None:
    few = [Silent(rank, "n1", "stacks", "its node has not answered") for rank in range(2, 8)]
    evaluating = replace(looked(EVALUATE, EVALUATE), silent=tuple(few))
    assert benign_of(doing_of(evaluating.first), len(evaluating.ranks_asked("stacks"))) == ""
    half = benign_of(doing_of(evaluating.first), 4)
    assert "of 2 more nothing could be read" in half
    found = with_dumps(of_traces(()), replace(looked(WAIT, WAIT), silent=tuple(few)))
    assert found.layer == ""
    assert "Stacks: only 2 of 8 ranks could be read." in found.agreement
    assert with_dumps(of_traces(()), replace(looked(WAIT, CODE), silent=tuple(few))).culprits == ()
    assert with_dumps(of_traces(()), replace(looked(WAIT, LOAD), silent=tuple(few[:2]))).culprits == (1,)
    idle = replace(of_traces((), kind=SymptomKind.IDLE))
    assert with_dumps(idle, replace(looked(LOAD, LOAD), silent=tuple(few))).findings == ()


def test_stacks_beyond_what_can_be_read_in_time_are_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_parts, "STACKS_BYTES_MAX", 3)
    read = dumped_of([arrived("stacks", rank, b"[]") for rank in range(3)])
    assert [one.silent[:8] for one in read.first] == ["", "not read", "not read"]
    assert [(one.rank, one.why[:8]) for one in read.silent] == [(1, "not read"), (2, "not read")]
    monkeypatch.undo()
    monkeypatch.setattr(dump_parts, "STACKS_SECONDS", -1.0)
    late = dumped_of([arrived("stacks", 0, b"[]"), arrived("stacks", 1, silent="no permission")])
    assert [one.silent[:8] for one in late.first] == ["not read", "no permi"]


def test_what_is_missing_beyond_what_can_be_told_is_counted() -> None:
    silent = tuple(Silent(rank, "n", "stacks", f"reason {rank}") for rank in range(40))
    missing = with_dumps(of_traces((2,)), replace(looked(WAIT, WAIT, LOAD), silent=silent)).missing
    assert (len(missing), missing[-1]) == (33, "8 more reasons are not told.")


def of_moments(age_ns: int, by: str = ANSWERED) -> Dumped:
    """Two ranks with an op of tp0 each 100 ms, of which one has not entered the newest, dumped age_ns after that."""
    beats = [(number, 100_000_000 * number) for number in range(1, 60)]
    rows = {0: beats, 1: beats[:-1]}
    return dumped_of(
        replace(arrived(RECORDER_KIND, rank), by=by, taken_ns=beats[-1][1] + age_ns).holding(beating(rank, those))
        for rank, those in rows.items()
    )


def beating(rank: int, beats: list[tuple[int, int]]) -> bytes:
    entries = [
        {
            "record_id": seq, "process_group": ("1", "tp0"), "collective_seq_id": seq, "p2p_seq_id": 0, "is_p2p": False,
            "profiling_name": "gloo:all_reduce", "time_created_ns": at, "state": "scheduled", "retired": seq < 59, "frames": [],
        }
        for seq, at in beats
    ]  # fmt: skip
    config = {"1": {"name": "1", "desc": "tp0", "ranks": "[0, 1]"}}
    return pickle.dumps({"version": "2.10", "pg_config": config, "entries": entries})


def test_of_a_job_that_went_on_while_it_was_dumped_nobody_is_blamed() -> None:
    stacks = looked(WAIT, LOAD)
    dumped = replace(of_moments(age_ns=200_000_000), first=stacks.first, last=stacks.last, asked=stacks.asked)
    found = with_dumps(of_traces(()), dumped, has_traces=False)
    assert (found.culprits, found.layer) == ((), "")
    assert "The job went on while it was dumped: no op in progress was older than 0.2 s" in found.missing[0]
    assert "Flight recorder: the job went on while it was dumped." in found.agreement
    view = views_of(dumped)["recorder"]
    assert (view["findings"], view["moving"]) == ([], found.missing[0])


@pytest.mark.parametrize(("age_s", "by"), [(9, ANSWERED), (0.2, "torch's dump file"), (-5, ANSWERED)])
def test_one_that_stood_still_or_was_dumped_at_an_unknown_time_is_judged_as_ever(age_s: float, by: str) -> None:
    found = with_dumps(of_traces(()), of_moments(int(age_s * 1e9), by), has_traces=False)
    assert found.culprits == (1,)


def test_no_stack_is_asked_for_of_what_is_known_to_be_no_python() -> None:
    told = "On n0 (rank 2): `py-spy dump --pid 102`, `cat /proc/102/stack`.\nOn n0 (rank 1): `py-spy dump --pid 101`."
    traces = of_traces((2,))
    traces = replace(traces, findings=(replace(traces.findings[0], advice=told),))
    silent = Dumped(silent=(Silent(2, "n0", "stacks", f"{NO_PYTHON}, so it has no Python stack"),))
    advice = with_dumps(traces, silent).findings[0].advice
    assert (
        advice.splitlines()[0]
        == "On n0 (rank 2): `gdb -p 102 -batch -ex 'thread apply all bt'`, `cat /proc/102/stack`."
    )
    assert advice.splitlines()[1] == "On n0 (rank 1): `py-spy dump --pid 101`."
    assert with_dumps(traces, Dumped()).findings[0].advice == told


def test_a_command_that_stands_above_is_not_given_twice() -> None:
    gdb = "On n0 (rank 2): `top -H -p 7`, `gdb -p 7 -batch -ex 'thread apply all bt'`."
    told = f"{gdb}\nOn n0 (rank 2): `py-spy dump --native --pid 7`.\nLook for the thread."
    assert without_python(told, {2}) == f"{gdb}\nLook for the thread."
