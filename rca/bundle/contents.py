"""What the files of a bundle are: told by what is in them, not by their names, since everybody names dumps differently.

Flight Recorder dumps and stacks belong to a rank, which their names end with; a name that ends with anything else is
refused, since a guess could blame the wrong rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from nccl_instrument.dumps import Silent
from rca.bundle.silent import SILENT_FILE, silent_in
from rca.bundle.unpack import Unpacked
from rca.flight_recorder.reading import BadDump, rank_in_name
from rca.flight_recorder.recording import Recording
from rca.flight_recorder.sandbox import BUNDLE_SECONDS, read_dumps
from rca.plain import printable
from rca.ras.reading import BadRas, read_ras
from rca.ras.report import RasReport
from rca.stacks.process import Process
from rca.stacks.reading import BadStacks, read_stacks

UNPACKING_SHARE: Final = 0.5  # of the time it takes, roughly
_STACKS_TEXT: Final = re.compile(rb"\A\s*Process \d+: ")
_STACKS_JSON: Final = re.compile(rb'\A\s*\[\s*\{[^\[\]]{0,2000}"frames"\s*:')
_RAS_JSON: Final = re.compile(rb'\A\s*\{\s*"nccl_version"')
_LOOK: Final = re.compile(r"look[-_.]?(\d{1,4})(?!\d)", re.IGNORECASE)
_RANK_IN_STACKS: Final = re.compile(r"(?:rank|(?<![a-z0-9])r)[-_.]?(\d{1,7})(?!\d)", re.IGNORECASE)


@dataclass(slots=True)
class Contents:
    """Everything that could be read. refused: file → why not. silent: who gave no dump and why, as our own zips say."""

    recording: Recording | None = None
    stacks: list[Process] = field(default_factory=list)
    ras: list[RasReport] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    silent: list[Silent] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to make a diagnosis of, not even who gave no dump and why."""
        recorded = self.recording is not None and self.recording.ranks
        return not recorded and not self.stacks and not self.ras and not self.silent


def read_contents(files: Unpacked, told: Callable[[float], None] = lambda share: None) -> Contents:
    """Read all files. told: called with the share of the work that is done. Raises BadBundle."""
    found, dumps = Contents(), []
    for path, raw in files:
        name = printable(path)
        told(UNPACKING_SHARE * files.share)
        try:
            if PurePosixPath(name).name == SILENT_FILE:
                found.silent += silent_in(raw)
            elif _STACKS_TEXT.match(raw) or _STACKS_JSON.match(raw[:4096]):
                found.stacks.append(read_stacks(raw, _rank_of_stacks(name)))
            elif _RAS_JSON.match(raw[:200]) or (b"NCCL version" in raw[:400] and b"Communicators" in raw[:20_000]):
                found.ras.append(read_ras(raw))
            elif raw[:1] in (b"\x80", b"}", b"(") or raw.lstrip()[:1] == b"{":
                rank_in_name(name)
                dumps.append((name, raw))
            else:
                found.refused[name] = "it is no dump of the Flight Recorder, py-spy or NCCL's RAS"
        except (BadDump, BadStacks, BadRas) as error:
            found.refused[name] = str(error)
    shared: dict[str, str] = {}
    dumps = _one_each(_once(dumps), shared)
    if dumps:
        found.recording = read_dumps(dumps, BUNDLE_SECONDS)
        found.recording.refused.update(shared)  # of these ranks nothing is known, either
        found.refused |= found.recording.refused
    found.refused |= shared
    found.refused |= {printable(path): printable(why) for path, why in files.refused.items()}
    return found


def _once(dumps: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Without the JSON of what is there as a pickle under the same name: that says more."""
    pickled = {name for name, raw in dumps if raw.lstrip()[:1] != b"{"}
    return [(name, raw) for name, raw in dumps if name in pickled or name.removesuffix(".json") not in pickled]


def _one_each(dumps: list[tuple[str, bytes]], refused: dict[str, str]) -> list[tuple[str, bytes]]:
    """One recording per rank: of several looks the last. Others that share a rank are refused: nobody knows whose they are.

    Where each node's ranks are counted from 0, two ranks would be taken for one, and whoever waits for an innocent one.
    """
    of_rank: dict[int, list[tuple[str, bytes]]] = {}
    for name, raw in dumps:
        of_rank.setdefault(rank_in_name(name), []).append((name, raw))
    kept = []
    for rank, those in of_rank.items():
        looks = [_LOOK.search(name) for name, _ in those]
        told = {int(look[1]): one for look, one in zip(looks, those, strict=True) if look}
        if len(those) == 1 or len(told) == len(those):
            kept.append(told[max(told)] if len(those) > 1 else those[0])
            continue
        for name, _ in those:
            refused[name] = (
                f"{len(those)} files are said to be of rank {rank}; name each with its rank in the whole job"
            )
    return kept


def _rank_of_stacks(name: str) -> int:
    """The rank a file of stacks belongs to: it says `rank` or `r` before it, or ends with it."""
    said = _RANK_IN_STACKS.search(name)
    return int(said[1]) if said else rank_in_name(name)
