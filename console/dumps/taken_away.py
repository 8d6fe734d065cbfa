"""Dumps to take away: one zip of everything that came for a request, as `python -m rca bundle` reads it anywhere."""

from __future__ import annotations

import tempfile
import zipfile
from typing import IO, Final

from ingest.dumps import parts_of
from ingest.models import DumpRequest, Rank
from nccl_instrument.dumps import STACKS, BadDump

MEMORY_BYTES: Final = 4 * 2**20  # a larger one is written to disk
RANKS_AT_ONCE: Final = 256


def zipped(request: DumpRequest) -> IO[bytes]:
    """The file, to be read from its start. Names end as the bundle's reader wants them; who gave none is in silent.txt."""
    file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115
    silent = []
    ranks = Rank.objects.filter(attempt=request.attempt_id).order_by("rank").values_list("rank", flat=True)
    known = sorted({-1, *ranks})
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for at in range(0, len(known), RANKS_AT_ONCE):
            for part in parts_of([request.pk], ranks=known[at : at + RANKS_AT_ONCE]):
                if part.silent:
                    silent.append(f"{part.kind} of rank {part.rank} on {part.node}: {part.silent}\n")
                    continue
                name = f"stacks/rank{part.rank}_{part.node}_{part.pid}_look{part.look}.json"
                if part.kind != STACKS:
                    name = f"recorder/look{part.look}_{part.node}_{part.rank}"
                try:
                    archive.writestr(name.replace("..", "_"), part.raw)
                except BadDump as error:
                    silent.append(f"{part.kind} of rank {part.rank} on {part.node}: {error}\n")
        archive.writestr("silent.txt", "".join(silent))
    file.seek(0)
    return file
