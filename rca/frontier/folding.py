"""Micro-steps' stages as the broad stages that people speak of: `data[0]`, `data[1]` are both data.

The frontier is taken over the ordered sub-stages first and folded only afterwards, so that repeated micro-steps are not
collapsed before they are accounted (StageFrontier §3). A schema without indices folds to itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from rca.frontier.accounting import Accounts, Ranks, Seconds

_INDEX: Final = re.compile(r"\[\d+\]$")


@dataclass(frozen=True, slots=True)
class Folding:
    """stages: the broad ones, in the order in which they come first; of: (S,) the broad stage of each ordered one."""

    stages: tuple[str, ...]
    of: Ranks

    def sums(self, values: Seconds) -> Seconds:
        """(…, G) of (…, S): what belongs to one broad stage, added."""
        if len(self.stages) == values.shape[-1]:
            return values
        found = np.zeros((*values.shape[:-1], len(self.stages)))
        for stage, broad in enumerate(self.of):
            found[..., broad] += values[..., stage]
        return found

    def boundary(self, accounts: Accounts, broad: int) -> int:
        """The ordered stage in which most of the broad one's time was exposed."""
        own = np.where(self.of == broad, accounts.advances.sum(axis=0), -1.0)
        return int(own.argmax())

    def is_indexed(self) -> bool:
        return len(self.stages) < len(self.of)


def broad_name(stage: str) -> str:
    """The stage without the number of its micro-step."""
    return _INDEX.sub("", stage)


def folding_of(stages: tuple[str, ...]) -> Folding:
    """How these ordered stages fold."""
    names = [broad_name(one) for one in stages]
    broad = tuple(dict.fromkeys(names))
    return Folding(broad, np.array([broad.index(one) for one in names], np.int64))
