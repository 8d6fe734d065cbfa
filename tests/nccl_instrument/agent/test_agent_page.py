"""docs/agent.md against the code: every flag, every loss kind, the limits in force."""

from __future__ import annotations

import re
from pathlib import Path

from nccl_instrument.agent import options
from nccl_instrument.agent.processes import follow
from nccl_instrument.agent.sending import batches, uplink
from nccl_instrument.tables import LOSSES

PAGE = (Path(__file__).parents[3] / "docs" / "agent.md").read_text()


def test_every_flag_is_on_the_page() -> None:
    flags = {text for action in options._parser({})._actions for text in action.option_strings}
    assert flags - {"-h", "--help"} == set(re.findall(r"^\| `(--[\w-]+)", PAGE, re.MULTILINE))


def test_every_loss_kind_is_on_the_page_in_its_order() -> None:
    listed = PAGE.partition("## What was lost")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^\| (\w+) \| ", listed, re.MULTILINE))[1:] == LOSSES


def test_the_limits_on_the_page_are_those_in_force() -> None:
    flow, op, live_op = (batches.ROWS_MAX[table] for table in ("flow", "op", "live_op"))
    for row in (
        f"| batches in memory while one request is under way | {uplink.FRESH_MAX}, {uplink.FRESH_BYTES_MAX >> 20} MiB |",
        f"| spool | {options.SPOOL_BYTES_MAX >> 20} MiB |",
        f"| processes followed | {follow.TRAINERS_MAX} |",
        f"| dead processes kept | {follow.DEAD_MAX} |",
        f"| rows of a batch | {flow:,} flow, {op:,} op, {live_op:,} live_op |",
    ):
        assert row in PAGE
