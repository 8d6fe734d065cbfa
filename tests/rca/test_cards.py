"""Failed work requests of a network card stand as evidence with the findings about its ranks, and name nobody by themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingest.window import Window
from rca.diagnose import diagnose
from rca.findings import Diagnosis
from rca.ranks import UNKNOWN_COUNT
from rca.triggers.look import look
from tests.windows import make_window


def telling(window: Window, node: int, name: bytes, n_errors: int, status: int = 12) -> Window:
    """`window` with cards that report failed work requests: this one so many, all others none."""
    rows = window.rows("nic").copy()
    rows["completion_errors"] = 0
    mine = (rows["node"] == node) & (rows["name"] == name)
    assert mine.any()
    rows["completion_errors"][mine], rows["completion_status"][mine] = n_errors, status
    return replace(window, tables={**window.tables, "nic": rows})


def diagnosed(window: Window) -> Diagnosis:
    (symptom,) = look(window).symptoms
    return diagnose(window, symptom)


def said(diagnosis: Diagnosis) -> list[tuple[int, str, float | int | str, int | None]]:
    return [
        (at, one.what, one.value, one.rank)
        for at, finding in enumerate(diagnosis.findings)
        for one in finding.evidence
        if one.what.startswith("failed work requests")
    ]


def test_without_a_shim_or_failures_nothing_is_said() -> None:
    window = make_window(nic_down=3)
    rows = window.rows("nic").copy()
    rows["completion_errors"] = UNKNOWN_COUNT
    assert not said(diagnosed(replace(window, tables={**window.tables, "nic": rows})))
    name = bytes(window.rows("nic")["name"][0])
    assert not said(diagnosed(telling(window, 0, name, 0)))


@pytest.mark.parametrize("ports_known", [True, False])
def test_the_card_of_the_culprit_says_that_it_gave_up(ports_known: bool) -> None:
    window = make_window(nic_down=3, ports_known=ports_known)
    place = window.ranks[window.ranks["rank"] == 3][0]
    before, after = diagnosed(window), diagnosed(telling(window, int(place["node"]), place["nic"].encode(), 7))
    ((at, what, n_errors, rank),) = said(after)
    name = str(window.nodes["name"][place["node"]])
    assert what == f"failed work requests of NIC {place['nic']} of {name}, the last one no answer after all retries"
    assert (at, n_errors, rank) == (0, 7, 3)
    assert [one.culprits for one in after.findings] == [one.culprits for one in before.findings]


def test_a_card_that_no_finding_is_about_stands_with_the_first_one() -> None:
    window = make_window(stuck_before=3)
    place = window.ranks[window.ranks["rank"] == 6][0]
    ((at, what, _, rank),) = said(diagnosed(telling(window, int(place["node"]), place["nic"].encode(), 1, status=99)))
    assert (at, rank) == (0, 6) and what.endswith("the last one with status 99")
