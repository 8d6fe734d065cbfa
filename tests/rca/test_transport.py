"""With transport code 0, as where NCCL_NET is unset: the right rank, or nobody, or a tie; never a wrong one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rca.diagnose import diagnose, transport_sentence
from rca.findings import Component, Diagnosis, Symptom, SymptomKind
from tests.rca.test_recorded import COMPONENTS, FOLDER, load_recorded
from tests.windows import make_window

FAULTS = {
    "nic_down": Component.NIC,
    "frozen": Component.PROCESS,
    "proxy_asleep": Component.PROXY,
    "stuck_before": Component.SOFTWARE,
}
SYMPTOM = Symptom(SymptomKind.EXTERNAL, "job", 1, 1, 2, 0, (), "")


def unsaid(fault: str, rank: int, transport: str) -> Diagnosis:
    scenario = {fault: rank, "seed": rank, "at_ms": 500 + 37 * rank}
    return diagnose(make_window(transport=transport, transport_known=False, **scenario), SYMPTOM)  # type: ignore[arg-type]


@pytest.mark.parametrize("rank", [0, 3, 6])
@pytest.mark.parametrize("transport", ["IB", "Socket"])
@pytest.mark.parametrize("fault", FAULTS)
def test_nobody_else_is_blamed(fault: str, transport: str, rank: int) -> None:
    found = unsaid(fault, rank, transport)
    assert found.culprits in ((), (rank,))
    if found.culprits:
        assert found.findings[0].component is FAULTS[fault]
    assert any("Transport unknown" in sentence for sentence in found.missing)


def test_one_flow_of_which_the_transport_is_not_known_is_one_flow() -> None:
    found = transport_sentence(SimpleNamespace(pairs=SimpleNamespace(transport=np.zeros(1, np.int64))), 1)  # type: ignore[arg-type]
    assert found.startswith("Transport unknown for 1 flow row (") and "for 1 flow only" in found


@pytest.mark.parametrize("transport", ["IB", "Socket"])
@pytest.mark.parametrize("fault", ["frozen", "stuck_before"])
def test_what_does_not_rest_on_the_transport_is_still_named(fault: str, transport: str) -> None:
    assert unsaid(fault, 3, transport).culprits == (3,)


@pytest.mark.parametrize("rank", [0, 3, 6])
def test_a_network_that_refuses_sends_is_recognised(rank: int) -> None:
    assert unsaid("nic_down", rank, "IB").culprits == (rank,)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.npz")), ids=lambda path: path.stem)
def test_recorded_hangs_blame_nobody_else(path) -> None:  # type: ignore[no-untyped-def]
    window = load_recorded(path)
    flow = window.rows("flow").copy()
    flow["transport"] = 0
    found = diagnose(replace(window, tables={**window.tables, "flow": flow}), SYMPTOM)
    fault = next(name for name in COMPONENTS if path.stem.startswith(name))
    ranks = tuple(int(word) for word in path.stem.removeprefix(fault).split("_") if word.isdigit())
    assert found.culprits in ((), ranks)
    if found.culprits:
        assert found.findings[0].component is COMPONENTS[fault]
