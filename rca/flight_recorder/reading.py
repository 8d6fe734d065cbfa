"""One Flight Recorder dump, pickle or JSON of versions 2.4 to 2.10, nccl or gloo, as a Recording.

Nothing is trusted: a pickle may name no class or function, every field is checked before it is used, and what does not
fit is BadDump with the reason. This guards against wrong answers and running code; memory and time are guarded by
reading in a process of its own (sandbox.py).
"""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from rca.flight_recorder.recording import COMPLETED, ENTRY, NOWHERE, SCHEDULED, STARTED, Group, Recording
from rca.plain import printable

DUMP_BYTES_MAX: Final = 256 * 2**20
ENTRIES_MAX: Final = 200_000
GROUPS_MAX: Final = 10_000
WORD_CHARS_MAX: Final = 300
_STATES: Final = {"scheduled": SCHEDULED, "started": STARTED, "completed": COMPLETED}
DETAILED_LAST: Final = 256
"""Sizes and call sites are kept of ops that are not finished, and of this many before the end."""
_ENDED: Final = re.compile(rb"\nended (in an op|outside any op) by (.{1,400})\Z", re.DOTALL)
"""Behind the dump of a program that an exception ended (nccl_instrument/recorder.py)."""
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
RANK_IN_NAME: Final = re.compile(r"(\d+)(?:\.(?:pkl|pickle|json|bin|dump|txt))?$", re.IGNORECASE)
TORCH_FRAME: Final = re.compile(r"[/\\]torch[/\\](?:distributed|_dynamo|nn[/\\]parallel|utils)[/\\]")


class BadDump(Exception):
    """Not a Flight Recorder dump that can be read; the message says why in one sentence."""


class _NoGlobals(pickle.Unpickler):
    """Builds lists, dicts, strings and numbers, and nothing that a dump could name."""

    def find_class(self, module: str, name: str) -> Any:
        raise BadDump(f"it asks for {module[:80]}.{name[:80]}, which a Flight Recorder dump never does")

    def persistent_load(self, pid: Any) -> Any:
        raise BadDump("it refers to objects outside itself, which a Flight Recorder dump never does")


def rank_in_name(name: str) -> int:
    """The rank a dump's file name ends with. Raises BadDump when it does not."""
    found = RANK_IN_NAME.search(name)
    if found is None or len(found[1]) > 7:
        raise BadDump("its name does not end with a rank")
    return int(found[1])


def read_dump(raw: bytes, rank: int) -> Recording:
    """The recording of `rank`. Raises BadDump."""
    if len(raw) > DUMP_BYTES_MAX:
        raise BadDump(f"{len(raw)} bytes, at most {DUMP_BYTES_MAX} are read")
    if not raw.strip():
        raise BadDump("it is empty")
    top = _json(raw) if raw.lstrip()[:1] in (b"{", b"[") else _unpickled(raw)
    if not isinstance(top, dict) or not ({"version", "entries", "pg_config"} & top.keys()):
        raise BadDump("it is no Flight Recorder dump: neither version nor entries nor pg_config")
    entries = top.get("entries") or []
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise BadDump("its entries are not a list of records")
    if len(entries) > ENTRIES_MAX:
        raise BadDump(f"{len(entries)} entries, at most {ENTRIES_MAX} are read")
    ended = _ENDED.search(raw[-600:])
    is_in_op = ended is not None and ended[1] == b"in an op"
    found = _recording(top, entries, rank, is_last_open=is_in_op)
    why = _word(ended[2].decode("utf-8", "replace")) if ended is not None else ""
    return replace(found, ended={rank: why}) if why else found


def _unpickled(raw: bytes) -> Any:
    try:
        return _NoGlobals(io.BytesIO(raw)).load()
    except BadDump:
        raise
    except RecursionError as error:
        raise BadDump("it is nested too deep") from error
    except MemoryError as error:
        raise BadDump("it asks for more memory than reading a dump may take") from error
    except Exception as error:  # hostile bytes raise anything
        raise BadDump(f"it is not a complete pickle ({type(error).__name__})") from error


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except RecursionError as error:
        raise BadDump("it is nested too deep") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise BadDump(f"it is not complete JSON ({str(error)[:120]})") from error


def _recording(top: dict[str, Any], entries: list[dict[str, Any]], rank: int, *, is_last_open: bool) -> Recording:
    groups, group_at = _groups(top, entries)
    names, name_at = _numbered([_said(one.get("profiling_name")) for one in entries])
    rows = np.zeros(len(entries), ENTRY)
    rows["rank"], rows["group"], rows["name"] = rank, group_at, name_at
    rows["record_id"] = _integers(entries, "record_id")
    rows["is_p2p"] = [one.get("is_p2p") is True for one in entries]
    # Before 2.4 there was one count for both.
    count = "collective_seq_id" if not entries or "collective_seq_id" in entries[0] else "seq_id"
    rows["seq"] = np.where(rows["is_p2p"], _integers(entries, "p2p_seq_id"), _integers(entries, count))
    rows["state"] = [_STATES.get(state, 0) if type(state := one.get("state")) is str else 0 for one in entries]
    rows["is_finished"] = (rows["state"] == COMPLETED) | np.array([one.get("retired") is True for one in entries], bool)
    if is_last_open:
        rows["is_finished"][np.flatnonzero(~rows["is_p2p"])[-1:]] = False  # gloo calls an op that raised retired
    rows["created_ns"] = _integers(entries, "time_created_ns")
    rows["completed_ns"] = _integers(entries, "time_discovered_completed_ns")
    shapes, places = _detail(entries, rows, _shape, "shape"), _detail(entries, rows, _place, "place")
    version = top.get("version")
    return Recording(rows, (rank,), groups, names, shapes, places, (_word(version),) if version is not None else ())


def _groups(top: dict[str, Any], entries: list[dict[str, Any]]) -> tuple[tuple[Group, ...], list[int]]:
    """The groups of the configuration and of the entries, and which one each entry belongs to."""
    numbers: dict[str, int] = {}
    found: list[Group] = []
    config = top.get("pg_config")
    for name, said in config.items() if isinstance(config, dict) else ():
        if isinstance(said, dict) and len(found) < GROUPS_MAX and _word(name) not in numbers and name != "":
            numbers[_word(name)] = len(found)
            found.append(Group(_word(name), _word(said.get("desc")), _members(said.get("ranks"))))
    at, known = [], dict[Any, int]()
    for one in entries:
        said = one.get("process_group")
        pair = said if type(said) is tuple and len(said) == 2 and type(said[0]) is type(said[1]) is str else _pair(one)
        number = known.get(pair)
        if number is None:
            number = known[pair] = _number_of(pair, numbers, found)
        at.append(number)
    return tuple(found), at


def _pair(entry: dict[str, Any]) -> tuple[str, str]:
    """Name and description of an entry's group; before 2.4 only its number is known."""
    said = entry.get("process_group")
    pair = said if isinstance(said, list | tuple) and len(said) == 2 else (entry.get("pg_id"), "")
    return _word(pair[0]), _word(pair[1])


def _number_of(pair: tuple[str, str], numbers: dict[str, int], found: list[Group]) -> int:
    """Place of the group in `found`, where it is put when it is new."""
    name, what = _word(pair[0]), _word(pair[1])
    if name not in numbers:
        if len(found) >= GROUPS_MAX:
            raise BadDump(f"more than {GROUPS_MAX} process groups")
        numbers[name] = len(found)
        found.append(Group(name, what))
    elif not found[numbers[name]].what:
        found[numbers[name]] = Group(name, what, found[numbers[name]].ranks)
    return numbers[name]


def _members(said: Any) -> tuple[int, ...]:
    """Ranks from "[0, 1, 5]" or a list of them; () when it says nothing."""
    if isinstance(said, str):
        said = [int(one) for one in re.findall(r"\d{1,7}", said[: 8 * ENTRIES_MAX])]
    if not isinstance(said, list):
        return ()
    return tuple(sorted({one for one in said if type(one) is int and 0 <= one < 10**7}))


def _integers(entries: list[dict[str, Any]], name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """(n,) a number of every entry; -1 where there is none. JSON has some of them as text."""
    values = [one.get(name) for one in entries]
    try:
        if set(map(type, values)) != {int}:
            values = [value if type(value) is int else _integer(value) for value in values]
        return np.array(values, np.int64)
    except OverflowError as error:
        raise BadDump(f"{name} has a number that cannot be true") from error


def _integer(value: Any) -> int:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value)
    return int(value) if isinstance(value, float) and abs(value) < 2**62 else -1


def _said(said: Any) -> str:
    return said if type(said) is str and len(said) <= WORD_CHARS_MAX else _word(said)


def _word(said: Any) -> str:
    if isinstance(said, int) and abs(said) < 2**63:
        return str(said)
    return printable(said[:WORD_CHARS_MAX]) if isinstance(said, str) else ""


def _numbered(words: Sequence[str]) -> tuple[tuple[str, ...], list[int]]:
    numbers: dict[str, int] = {}
    at = [numbers.setdefault(word, len(numbers)) for word in words]
    return tuple(map(printable, numbers)), at


def _detail(
    entries: list[dict[str, Any]], rows: Any, word_of: Callable[[dict[str, Any]], str], column: str
) -> tuple[str, ...]:
    """Fill a column that takes long to make, for the rows that may matter; returns its words."""
    wanted = ~rows["is_finished"]
    wanted[-DETAILED_LAST:] = True
    at = np.flatnonzero(wanted)
    words, numbers = _numbered([word_of(entries[one]) for one in at])
    rows[column] = NOWHERE
    rows[column][at] = numbers
    return words


def _shape(entry: dict[str, Any]) -> str:
    """Sizes and types, as every member of a group has to say them; once where what goes in is like what comes out."""
    given, taken = (
        f"{_sizes(entry.get(f'{end}_sizes'))} {_types(entry.get(f'{end}_dtypes'))}".strip()
        for end in ("input", "output")
    )
    return given if given == taken else f"{given} → {taken}"


def _sizes(said: Any) -> str:
    if not isinstance(said, list | tuple):
        return ""
    shown = [
        "×".join(str(n) for n in one[:16] if isinstance(n, int)) if isinstance(one, list | tuple) else str(one)[:20]
        for one in said[:64]
    ]
    return ", ".join(shown) + (f" and {len(said) - 64} more" if len(said) > 64 else "")


def _types(said: Any) -> str:
    return ", ".join(dict.fromkeys(_word(one) for one in said[:64])) if isinstance(said, list | tuple) else ""


def _place(entry: dict[str, Any]) -> str:
    """The innermost line of the caller's own code: frames of torch itself say only which op it was."""
    frames = entry.get("frames")
    for frame in frames[:64] if isinstance(frames, list) else ():
        if isinstance(frame, dict) and not TORCH_FRAME.search(_word(frame.get("filename"))):
            return f"{_word(frame.get('filename'))}:{_word(frame.get('line'))} in {_word(frame.get('name'))}"
    return ""
