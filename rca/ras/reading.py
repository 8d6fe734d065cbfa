"""NCCL RAS reports, as JSON or as the text of `ncclras`, of NCCL 2.24 and later.

Version 2.28.9 forgets a comma in its list of missing ranks; that is put right. A text report lists one by one only the
members that are in the minority. Nothing is trusted: sizes are capped and what cannot be read is BadRas, in a sentence.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from rca.plain import printable
from rca.ras.report import RasCommunicator, RasMember, RasMissing, RasReport, Where

RAS_BYTES_MAX: Final = 64 * 2**20
COMMUNICATORS_MAX: Final = 20_000
MEMBERS_MAX: Final = 200_000
COUNTED: Final = "ops"
_FORGOTTEN_COMMA: Final = re.compile(r'("nvml_dev"\s*:\s*-?\d+)(\s*"status")')
_VERSION: Final = re.compile(r"^NCCL version (\S{1,40})")
_HEAD: Final = re.compile(r"^#(\d+-\d+) \(([0-9a-f]{1,40})\) ")
_KIND: Final = re.compile(r"^  Communicator ranks have different (\w+) operation counts")
_COUNT: Final = re.compile(r"^  (\d{1,9}) ranks? ha(?:s|ve) launched up to operation (\d{1,18})")
_MISSING: Final = re.compile(r"^  Missing communicator data from (\d{1,9}) ranks?")
_RANK: Final = re.compile(r"^  Rank (\d{1,9}) -- GPU (\d{1,6}) managed by process (\d{1,9}) on node (\S{1,200})(.*)$")


class BadRas(Exception):
    """Not a RAS report that can be read; the message says why in one sentence."""


def read_ras(raw: bytes) -> RasReport:
    """The report. Raises BadRas."""
    if len(raw) > RAS_BYTES_MAX:
        raise BadRas(f"{len(raw)} bytes, at most {RAS_BYTES_MAX} are read")
    text = raw.decode("utf-8", "replace").strip()
    if text.startswith("{"):
        return _from_json(text)
    if "NCCL version" not in text or "Communicators" not in text:
        raise BadRas("it is neither the JSON nor the text of an NCCL RAS report")
    return _from_text(text)


# ---- JSON ---------------------------------------------------------------------------------------------------------------


def _from_json(text: str) -> RasReport:
    try:
        said = json.loads(_FORGOTTEN_COMMA.sub(r"\1,\2", text))
    except RecursionError as error:
        raise BadRas("it is nested too deep") from error
    except ValueError as error:
        raise BadRas(f"it is not complete JSON ({str(error)[:120]})") from error
    found = said.get("communicators") if isinstance(said, dict) else None
    if not isinstance(found, list) or "nccl_version" not in said:
        raise BadRas("it is JSON, but no NCCL RAS report")
    if len(found) > COMMUNICATORS_MAX or sum(len(_list(one, "ranks")) for one in found) > MEMBERS_MAX:
        raise BadRas(f"more than {COMMUNICATORS_MAX} communicators or {MEMBERS_MAX} members")
    return RasReport(_word(said["nccl_version"]), tuple(_communicator(one) for one in found if isinstance(one, dict)))


def _communicator(said: dict[str, Any]) -> RasCommunicator:
    members = tuple(
        RasMember(_number(one.get("rank")), _where(one), _counts(one.get("collective_counts")))
        for one in _list(said, "ranks")
    )
    missing = tuple(
        RasMissing(_number(one.get("rank")), _where(one), _is_dead(one.get("status")))
        for one in _list(said, "missing_ranks")
    )
    return RasCommunicator(_word(said.get("hash")), _number(said.get("size")), members, missing, {})


def _list(said: Any, name: str) -> list[dict[str, Any]]:
    found = said.get(name) if isinstance(said, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _counts(said: Any) -> dict[str, int]:
    if not isinstance(said, dict):
        return {}
    return {_word(name): count for name, count in list(said.items())[:64] if type(count) is int and count >= 0}


def _is_dead(said: Any) -> bool:
    return isinstance(said, dict) and said.get("considered_dead") is True


def _where(said: dict[str, Any]) -> Where:
    return _word(said.get("host")), _number(said.get("pid")), _number(said.get("cuda_dev"))


def _number(said: Any) -> int:
    return said if type(said) is int and 0 <= said < 2**40 else -1


def _word(said: Any) -> str:
    return printable(said[:200]) if isinstance(said, str) else ""


# ---- text ---------------------------------------------------------------------------------------------------------------


class _Section:
    """What was read of one communicator so far."""

    def __init__(self, name: str) -> None:
        self.name, self.kind, self.count, self.is_missing = name, COUNTED, -1, False
        self.members: list[RasMember] = []
        self.missing: list[RasMissing] = []
        self.lines: list[tuple[str, int, int]] = []

    def done(self) -> RasCommunicator:
        listed: dict[tuple[str, int], int] = {}
        for one in self.members:
            for kind, count in one.counts.items():
                listed[kind, count] = listed.get((kind, count), 0) + 1
        others: dict[str, tuple[int, int]] = {}
        for kind, n, count in self.lines:
            if n > listed.get((kind, count), 0) and n > others.get(kind, (0, 0))[0]:
                others[kind] = (n, count)
        return RasCommunicator(self.name, 0, tuple(self.members), tuple(self.missing), others)


def _from_text(text: str) -> RasReport:
    version, sections = "", list[_Section]()
    for line in text.splitlines():
        if said := _VERSION.match(line):
            version = said[1]
        elif said := _HEAD.match(line):
            if len(sections) >= COMMUNICATORS_MAX:
                raise BadRas(f"more than {COMMUNICATORS_MAX} communicators")
            sections.append(_Section(said[2]))
        elif line and not line.startswith(" "):
            sections.append(_Section(""))  # a part about the job, not about a communicator
        elif sections:
            _read_line(sections[-1], line)
    return RasReport(version, tuple(one.done() for one in sections if one.name))


def _read_line(section: _Section, line: str) -> None:
    if said := _KIND.match(line):
        section.kind, section.is_missing = COUNTED if said[1] == "collective" else said[1], False
    elif said := _COUNT.match(line):
        section.count, section.is_missing = int(said[2]), False
        section.lines.append((section.kind, int(said[1]), section.count))
    elif _MISSING.match(line):
        section.is_missing = True
    elif said := _RANK.match(line):
        rank, where = int(said[1]), (said[4], int(said[3]), int(said[2]))
        if section.is_missing:
            section.missing.append(RasMissing(rank, where, "dead" in said[5]))
        elif section.count >= 0:
            section.members.append(RasMember(rank, where, {section.kind: section.count}))
