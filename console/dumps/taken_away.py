"""Dumps to take away: one zip of everything that came for a request, as `python -m rca bundle` reads it anywhere.

Made while it is sent, part by part, since a request's dumps may be more than the web process should hold; each part is taken
in a thread, so that other requests are answered meanwhile.
"""

from __future__ import annotations

import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from asgiref.sync import sync_to_async

from ingest.door.dumps import DumpPart, each_part
from ingest.models import DumpRequest
from nccl_instrument.dumps import STACKS, BadDump, Silent
from rca.bundle.silent import SILENT_FILE, silent_text

ALL_BYTES_MAX: Final = 2**30
"""Of all parts, before they are compressed."""


class _Written:
    """What a zip file has written and nobody has taken yet."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, raw: bytes) -> int:
        self._pieces.append(bytes(raw))
        return len(raw)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def zipped(request: DumpRequest) -> Iterator[bytes]:
    """The file in pieces. Names end as the bundle's reader wants them; who gave none, or is left out, is in silent.txt."""
    written, silent, left = _Written(), [], ALL_BYTES_MAX
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for part in each_part(request.pk):
            if why := part.silent or put_dump(archive, part, left):
                silent.append(Silent(part.rank, part.node, part.kind, why))
                continue
            left -= part.length
            yield written.taken()
        archive.writestr(SILENT_FILE, silent_text(silent))
    yield written.taken()


def put_dump(
    archive: zipfile.ZipFile,
    part: DumpPart,
    left: int,
    folder: str = "",
    note: Callable[[str, bytes], None] | None = None,
) -> str:
    """Put it into the archive while `left` bytes of dumps may still go in; why not, else ''. note: is told name and bytes."""
    if part.length > left:
        return f"left out: such a file has at most {ALL_BYTES_MAX >> 20} MiB of dumps"
    name = f"stacks/rank{part.rank}_{part.node}_{part.pid}_look{part.look}.json"
    if part.kind != STACKS:
        name = f"recorder/look{part.look}_{part.node}_{part.rank}"
    name = folder + name.replace("..", "_")
    try:
        raw = part.raw
    except BadDump as error:
        return str(error)
    archive.writestr(name, raw)
    if note is not None:
        note(name, raw)
    return ""


async def one_by_one(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces as the server sends them: of an iterator that is not asynchronous Django would hold all at once."""
    while (piece := await sync_to_async(lambda: next(pieces, None))()) is not None:
        yield piece
