"""Words shared by findings: long lists say how much of them is left out."""

from __future__ import annotations

import pytest

from rca.words import listed


@pytest.mark.parametrize(
    ("names", "said"),
    [([], ""), (["n1"], "n1"), (["n1", "n2"], "n1, n2"), (["n1", "n2", "n3", "n4"], "n1, n2 and 2 more")],
)
def test_of_a_long_list_it_is_said_how_many_are_left_out(names: list[str], said: str) -> None:
    assert listed(names, 2) == said
