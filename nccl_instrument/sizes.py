"""What every layout of a job has, simulated or live: sizes of the parallel groups and of a node, and when they cannot be.

The simulator's and the testbed's layouts differ in what they are made for (arrays of 100,000 ranks, objects of 64), not in
which sizes fit together: that is said here, once.
"""

from __future__ import annotations


class LayoutError(ValueError):
    """The layout cannot be built; the message is one sentence for a person."""


class Sizes:
    """Base of the layouts, which are dataclasses with at least these fields. nics_per_node 0: one per rank."""

    tp: int
    pp: int
    dp: int
    ranks_per_node: int
    nics_per_node: int

    def check_sizes(self, names: tuple[str, ...], ranks_max: int, holder: str) -> None:
        """Raises LayoutError. names: the fields that must be at least 1; holder: what has room for ranks_max ranks."""
        for name in names:
            if getattr(self, name) < 1:
                raise LayoutError(f"--{name.replace('_', '-')} must be at least 1.")
        if self.n_ranks < 2:
            raise LayoutError("One rank alone has nobody to talk to: make tp × pp × dp at least 2.")
        if self.n_ranks > ranks_max:
            raise LayoutError(
                f"tp × pp × dp = {self.n_ranks} ranks are too many for {holder}: the limit is {ranks_max}."
            )
        if self.n_ranks % self.ranks_per_node:
            raise LayoutError(
                f"tp × pp × dp = {self.n_ranks} ranks do not fill nodes of {self.ranks_per_node}: "
                "choose a number of ranks per node that divides it."
            )
        if not 0 <= self.nics_per_node <= self.ranks_per_node:
            raise LayoutError(f"--nics-per-node must lie between 1 and the {self.ranks_per_node} ranks of a node.")

    @property
    def n_ranks(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def n_nodes(self) -> int:
        return self.n_ranks // self.ranks_per_node

    @property
    def n_nics_per_node(self) -> int:
        return self.nics_per_node or self.ranks_per_node
