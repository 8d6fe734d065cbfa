"""What a capture was reduced to, as one .npz file: epochs go to disk as they come, so that the file may outgrow memory."""

from __future__ import annotations

import ipaddress
import json
import os
import tempfile
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.captures.epochs import CELL, Cells

COPIED_BYTES: Final = 2**20
ADDRESS: Final = "S39"
CELLS_READ_MAX: Final = 16_000_000


class EpochFile:
    """Takes cells, and becomes a file when told to; leaves nothing behind when it is not."""

    def __init__(self, path: Path) -> None:
        self.path, self._n_cells = path, 0
        self.n_unread = 0  # cells of the flows last asked for, for which there was no room
        self._cells: BinaryIO = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115

    def __enter__(self) -> EpochFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._cells.close()

    def take(self, cells: Cells) -> None:
        self._cells.write(cells.tobytes())
        self._n_cells += len(cells)

    def cells_of(self, flows: Collection[int]) -> Cells:
        """The cells of these flows, in the order in which they came; of more than CELLS_READ_MAX the earlier ones of all flows:
        of a flow with less than another, ops would be cut wrongly.
        """
        found, until, wanted, n_all = [np.zeros(0, CELL)], 2**62, np.array(sorted(flows)), 0
        self._cells.seek(0)
        while part := self._cells.read(COPIED_BYTES // CELL.itemsize * CELL.itemsize):
            cells = np.frombuffer(part, CELL)
            mine = cells[np.isin(cells["flow"], wanted)]
            n_all += len(mine)
            found.append(mine[mine["epoch"] < until])
            if sum(map(len, found)) > CELLS_READ_MAX:
                whole = np.concatenate(found)
                until = int(np.partition(whole["epoch"], CELLS_READ_MAX // 2)[CELLS_READ_MAX // 2])
                found = [whole[whole["epoch"] < until]]
        whole = np.concatenate(found)
        self.n_unread = n_all - len(whole)
        return whole

    def save(
        self, flows: npt.NDArray[np.void], facts: Mapping[str, Any], traffic: npt.NDArray[np.void] | None = None
    ) -> None:
        """Write flows.npy, cells.npy, facts.npy (JSON) and, if there is any, traffic.npy under the name, all or nothing."""
        unfinished = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as archive:
                self._copy_cells(archive)
                more = {} if traffic is None else {"traffic": traffic}
                for name, array in {"flows": saved_flows(flows), "facts": np.array(json.dumps(facts)), **more}.items():
                    with archive.open(f"{name}.npy", "w") as entry:
                        np.lib.format.write_array(entry, array, allow_pickle=False)
            unfinished.replace(self.path)
        finally:
            unfinished.unlink(missing_ok=True)

    def _copy_cells(self, archive: zipfile.ZipFile) -> None:
        self._cells.seek(0)
        with archive.open("cells.npy", "w", force_zip64=True) as entry:
            header = {"descr": np.lib.format.dtype_to_descr(CELL), "fortran_order": False, "shape": (self._n_cells,)}
            np.lib.format.write_array_header_1_0(entry, header)
            while part := self._cells.read(COPIED_BYTES):
                entry.write(part)


def saved_flows(flows: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """The flows with addresses as text, without what only the reduction needs."""
    names = [name for name in flows.dtype.names or () if name not in ("ends", "psn", "is_after_read", "open")]
    kinds = [("source", ADDRESS), ("destination", ADDRESS), *((name, flows.dtype[name]) for name in names)]
    found = np.zeros(len(flows), np.dtype(kinds))
    for name in names:
        found[name] = flows[name]
    found["source"] = [address(ends[:2]) for ends in flows["ends"]]
    found["destination"] = [address(ends[2:]) for ends in flows["ends"]]
    return found


def address(words: npt.NDArray[np.uint64]) -> str:
    """An address of two words as people write it."""
    whole = ipaddress.IPv6Address(int(words[0]) << 64 | int(words[1]))
    return str(whole.ipv4_mapped or whole)
