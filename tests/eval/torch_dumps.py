"""Dumps of a PyTorch job as its agents would send them, kept in a file and diagnosed without a server.

Every body goes through nccl_instrument/dumps.py: what is replayed is what would have been received. A kept file has the
parts inflated and one after the other, since ranks of a job hold almost the same, which compresses well.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from nccl_instrument.agent.dumps.recordings import take_recordings
from nccl_instrument.agent.dumps.stacks import take_stacks
from nccl_instrument.agent.processes.proc import Living, started_at
from nccl_instrument.dumps import Arrived, Dumps, Part, decode_dumps, encode_dumps
from rca.dumps.dumped import dumped_of, with_dumps
from rca.findings import Diagnosis, Symptom, SymptomKind
from rca.settings import DEFAULT


def look_at(node: str, trainers: Mapping[int, int], folder: Path, look: int) -> Dumps:
    """What a node sends, as it is received; trainers: rank → process id."""
    asked = sorted(trainers.items())
    living = [Living(rank, pid, started_at(pid) or 0, folder, os.getuid()) for rank, pid in asked]
    parts = [*take_stacks(asked), *take_recordings(living)]
    return decode_dumps(encode_dumps(Dumps("job", node, "00" * 16, 1, look, tuple(parts))))


def keep(bodies: Sequence[Dumps], path: Path) -> None:
    heads = []
    with tarfile.open(path, "w:xz") as archive:
        for number, body in enumerate(bodies):
            heads.append({**dataclasses.asdict(body), "parts": [_head(part) for part in body.parts]})
            for at, part in enumerate(body.parts):
                _add(archive, f"{number}/{at}", part.raw)
        _add(archive, "heads", json.dumps(heads).encode())


def _head(part: Part) -> dict[str, object]:
    return {name: value for name, value in dataclasses.asdict(part).items() if name not in ("packed", "length")}


def _add(archive: tarfile.TarFile, name: str, raw: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(raw)
    archive.addfile(member, io.BytesIO(raw))


def kept(path: Path) -> list[Dumps]:
    with tarfile.open(path, "r:xz") as archive:
        raw = {member.name: file.read() for member in archive if (file := archive.extractfile(member)) is not None}
    return [
        Dumps(**{**head, "parts": tuple(Part(**one).holding(raw[f"{n}/{k}"]) for k, one in enumerate(head["parts"]))})
        for n, head in enumerate(json.loads(raw["heads"]))
    ]


def diagnosis_of(bodies: Sequence[Dumps]) -> Diagnosis:
    """What the dumps alone say."""
    parts = [
        Arrived(node=body.node, look=body.look, **{name.name: getattr(one, name.name) for name in fields(one)})
        for body in bodies
        for one in body.parts
    ]
    symptom = Symptom(SymptomKind.FAILURE, "job", 0, 0, 0, 0, (), "No rank goes on.")
    nothing = Diagnosis(symptom, (), (), (), {}, (), (), {}, 0)
    return with_dumps(nothing, dumped_of(parts), DEFAULT, has_traces=False)
