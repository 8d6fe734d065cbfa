"""The throughput chart says the same as its text, and says nothing it does not know."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from console.dashboard.figures import BUCKET_SECONDS, SECOND, begins_ns, throughput_figure
from ingest.models import Attempt, OpRollup
from nccl_instrument.tables import FUNCS

NOW_NS = 1_790_000_045 * SECOND
ALLREDUCE, ALLGATHER = FUNCS.index("AllReduce"), FUNCS.index("AllGather")


def finish_ops(attempt: Attempt, func: int, bucket: int, n_ops: int, part: int = 0) -> None:
    durations = {f"duration_{name}_ns": 1 for name in ("sum", "max")}
    bucket_ns = (1_790_000_000 + bucket * BUCKET_SECONDS) * SECOND
    OpRollup.objects.create(
        attempt=attempt, comm_id=1, func=func, bucket_ns=bucket_ns, part=part, n_ops=n_ops, n_timed=0, bytes=0, **durations
    )  # fmt: skip


@pytest.mark.django_db
def test_each_kind_of_op_is_a_line_and_a_silent_bucket_is_zero(attempt: Attempt) -> None:
    finish_ops(attempt, ALLREDUCE, 0, 40)
    finish_ops(attempt, ALLREDUCE, 2, 30)
    finish_ops(attempt, ALLREDUCE, 2, 10, part=1)
    finish_ops(attempt, ALLGATHER, 1, 5)
    figure = throughput_figure("llama", attempt, NOW_NS)
    lines = {line["name"]: line["y"] for line in figure["data"]}
    assert lines == {"AllReduce": [4.0, 0.0, 4.0, 0.0], "AllGather": [0.0, 0.5, 0.0, 0.0]}
    assert "AllReduce: 0 in the newest ten seconds, 2 on average." in figure["text"]


@pytest.mark.django_db
def test_without_ops_the_text_says_so(attempt: Attempt) -> None:
    figure = throughput_figure("llama", attempt, NOW_NS)
    assert (figure["data"], figure["text"].startswith("No completed ops")) == ([], True)
    assert throughput_figure("llama", None)["data"] == []


@pytest.mark.django_db
def test_the_figure_follows_the_pages_theme_and_talks_to_nobody(attempt: Attempt) -> None:
    figure = throughput_figure("llama", attempt, NOW_NS)
    assert "template" not in figure["layout"]
    assert figure["layout"]["paper_bgcolor"] == "rgba(0,0,0,0)"
    assert (figure["config"]["showSendToCloud"], figure["config"]["displaylogo"]) == (False, False)


@pytest.mark.django_db
def test_a_young_jobs_axis_begins_with_the_job_or_its_first_data(attempt: Attempt) -> None:
    attempt.started_at = datetime.fromtimestamp(NOW_NS / 1e9 - 100, UTC)
    long_ago = NOW_NS - 1800 * SECOND
    assert NOW_NS - begins_ns(attempt, long_ago, NOW_NS) == pytest.approx(105 * SECOND, rel=1e-3)
    assert begins_ns(attempt, NOW_NS - 10 * SECOND, NOW_NS) == NOW_NS - 10 * SECOND
    shown = throughput_figure("llama", attempt, NOW_NS)["layout"]["xaxis"]["range"]
    assert datetime.fromisoformat(shown[0]).timestamp() == pytest.approx(NOW_NS / 1e9 - 105, abs=1.1)
