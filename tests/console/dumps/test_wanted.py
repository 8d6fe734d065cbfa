"""What an incident asks the nodes for, by what kind of trouble it is."""

from __future__ import annotations

import pytest

from console.dumps.wanted import _ASKED, EPOCHS_RANKS_MAX, kinds_for
from nccl_instrument.dumps import EPOCHS, RECORDER, STACKS
from rca.findings import SymptomKind


@pytest.mark.parametrize("symptom", list(SymptomKind))
@pytest.mark.parametrize("n_ranks", [0, 8, EPOCHS_RANKS_MAX, EPOCHS_RANKS_MAX + 1, 10_000])
def test_what_was_sent_is_asked_for_of_slow_jobs_that_are_not_large(symptom: SymptomKind, n_ranks: int) -> None:
    kinds = kinds_for(symptom, n_ranks)
    assert STACKS in kinds and kinds in _ASKED
    assert (EPOCHS in kinds) == (symptom is SymptomKind.STRAGGLER and n_ranks <= EPOCHS_RANKS_MAX)
    assert (RECORDER in kinds) == (symptom not in (SymptomKind.STRAGGLER, SymptomKind.IDLE))
