"""One Flight Recorder dump, pickle or JSON of versions 2.4 to 2.10, nccl or gloo, as Columns.

Nothing is trusted: a pickle may name no class or function, every field is checked before it is used, and what does not
fit is BadDump with the reason. This guards against wrong answers and running code; memory and time are guarded by
reading in a process of its own (sandbox.py), which is why nothing here needs numpy.
"""

from __future__ import annotations

import io
import json
import pickle
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

from rca.flight_recorder.columns import COMPLETED, NOWHERE, SCHEDULED, STARTED, TYPES, Columns, Group, Words
from rca.plain import printable

DUMP_BYTES_MAX: Final = 256 * 2**20
ENTRIES_MAX: Final = 200_000
GROUPS_MAX: Final = 10_000
WORD_CHARS_MAX: Final = 300
_STATES: Final = {"scheduled": SCHEDULED, "started": STARTED, "completed": COMPLETED}
CLOSING: Final = ":coalesced"
"""How the name of the entry ends that closes a batch; its ops are `scheduled` for ever."""
DETAILED_LAST: Final = 256
"""Sizes and call sites are kept of ops that are not finished, and of this many before the end."""
_ENDED: Final = re.compile(rb"\nended (in an op|outside any op) by (.{1,400})\Z", re.DOTALL)
"""Behind the dump of a program that an exception ended (nccl_instrument/recorder.py)."""
_SHAPE: Final = ("input_sizes", "input_dtypes", "output_sizes", "output_dtypes")
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
RANK_IN_NAME: Final = re.compile(r"(\d+)(?:\.(?:pkl|pickle|json|bin|dump|txt))?$", re.IGNORECASE)
TORCH_FRAME: Final = re.compile(r"[/\\]torch[/\\](?:distributed|_dynamo|nn[/\\]parallel|utils)[/\\]")


class BadDump(Exception):
    """Not a Flight Recorder dump that can be read; the message says why in one sentence."""


class _Ahead(io.BytesIO):
    """Bytes that an unpickler may look ahead in; it would ask for every few of them anew, which takes three times as long."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        self._raw = raw

    def peek(self, size: int) -> bytes:
        return self._raw[self.tell() : self.tell() + size]


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


def read_columns(raw: bytes, rank: int) -> Columns:
    """What `rank` recorded. Raises BadDump."""
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
    why = _word(ended[2].decode("utf-8", "replace")) if ended is not None else ""
    return _columns(top, entries, rank, why, is_last_open=is_in_op)


def _unpickled(raw: bytes) -> Any:
    try:
        return _NoGlobals(_Ahead(raw)).load()
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


def _columns(
    top: dict[str, Any], entries: list[dict[str, Any]], rank: int, ended: str, *, is_last_open: bool
) -> Columns:
    groups, group_at = _groups(top, entries)
    names, name_at = _numbered(_words(_column(entries, "profiling_name")))
    is_p2p, is_retired = _is_true(entries, "is_p2p"), _is_true(entries, "retired")
    states = [_STATES.get(word, 0) for word in _words(_column(entries, "state"))]
    is_finished = [state == COMPLETED or retired for state, retired in zip(states, is_retired, strict=True)]
    # Before 2.4 there was one count for both.
    count = "collective_seq_id" if not entries or "collective_seq_id" in entries[0] else "seq_id"
    seqs, p2p_seqs = _integers(entries, count), _integers(entries, "p2p_seq_id") if any(is_p2p) else []
    seqs = [p2p_seqs[at] if is_p2p[at] else seq for at, seq in enumerate(seqs)] if p2p_seqs else seqs
    closing = {number for number, name in enumerate(names) if name.endswith(CLOSING)}
    for at, end in _closed(list(zip(group_at, is_p2p, seqs, strict=True)), [name in closing for name in name_at]):
        states[at], is_finished[at] = states[end], is_finished[end]
    if is_last_open and not all(is_p2p):
        newest = next(at for at in reversed(range(len(entries))) if not is_p2p[at])
        is_finished[newest] = False  # gloo calls an op that raised retired
    detailed = _detailed(is_finished)
    shapes, shape_at = _detail(entries, detailed, _shapes)
    places, place_at = _detail(entries, detailed, _places)
    numbers: dict[str, Sequence[int]] = {
        "group": group_at, "name": name_at, "record_id": _integers(entries, "record_id"), "is_p2p": is_p2p, "state": states,
        "seq": seqs, "is_finished": is_finished, "created_ns": _integers(entries, "time_created_ns"),
        "completed_ns": _integers(entries, "time_discovered_completed_ns"), "shape": shape_at, "place": place_at,
    }  # fmt: skip
    version = top.get("version")
    versions = (_word(version),) if version is not None else ()
    words = Words(rank, groups, names, shapes, places, versions, ended=ended)
    return Columns(words, {column: _array(column, kind, numbers[column]) for column, kind in TYPES.items()})


def _closed(numbered: list[tuple[int, bool, int]], is_closing: list[bool]) -> Iterator[tuple[int, int]]:
    """(op, the entry that closes its batch): torch keeps the state of a batch in an entry of its own behind the ops.

    numbered: (group, p2p or not, number) of every entry; the ops of a batch have the number of the one that closes it.
    """
    ends: dict[tuple[int, bool, int], int] = {}
    for at in reversed(range(len(numbered))) if any(is_closing) else ():
        if is_closing[at]:
            ends[numbered[at]] = at
        elif numbered[at] in ends:
            yield at, ends[numbered[at]]


def _array(column: str, kind: str, numbers: Sequence[int]) -> array[int]:
    try:
        return array(kind, numbers)
    except OverflowError as error:
        raise BadDump(f"{column} has a number that cannot be true") from error


def _column(entries: list[dict[str, Any]], name: str) -> list[Any]:
    """One field of every entry, None where it is missing. Whole columns, since a loop over entries and fields takes longest."""
    try:
        return list(map(itemgetter(name), entries))
    except KeyError:
        return [one.get(name) for one in entries]


def _is_true(entries: list[dict[str, Any]], name: str) -> list[bool]:
    return [said is True for said in _column(entries, name)]


def _groups(top: dict[str, Any], entries: list[dict[str, Any]]) -> tuple[tuple[Group, ...], list[int]]:
    """The groups of the configuration and of the entries, and which one each entry belongs to."""
    numbers: dict[str, int] = {}
    found: list[Group] = []
    config = top.get("pg_config")
    for name, said in config.items() if isinstance(config, dict) else ():
        if isinstance(said, dict) and len(found) < GROUPS_MAX and _word(name) not in numbers and name != "":
            numbers[_word(name)] = len(found)
            found.append(Group(_word(name), _word(said.get("desc")), _members(said.get("ranks"))))
    pairs = _column(entries, "process_group")
    if not _are_pairs_of_words(pairs):
        pairs = [_pair(one) for one in entries]
    known = {pair: _number_of(pair, numbers, found) for pair in dict.fromkeys(pairs)}
    return tuple(found), [known[pair] for pair in pairs]


def _are_pairs_of_words(pairs: list[Any]) -> bool:
    """Whether they are as torch's pickles have them, and may be keys as they are."""
    if set(map(type, pairs)) != {tuple} or set(map(len, pairs)) != {2}:
        return False
    return all(set(map(type, column)) == {str} for column in zip(*pairs, strict=True))


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


def _integers(entries: list[dict[str, Any]], name: str) -> list[int]:
    """A number of every entry; -1 where there is none. JSON has some of them as text."""
    values = _column(entries, name)
    if set(map(type, values)) == {int}:
        return values
    return [value if type(value) is int else -1 if value is None else _integer(value) for value in values]


def _integer(value: Any) -> int:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value)
    return int(value) if isinstance(value, float) and abs(value) < 2**62 else -1


def _words(column: list[Any]) -> list[str]:
    """Each as a word, made once for each of the few that differ."""
    if set(map(type, column)) != {str}:
        return [_word(said) for said in column]
    made = {said: _word(said) for said in set(column)}
    return [made[said] for said in column]


def _word(said: Any) -> str:
    if isinstance(said, int) and abs(said) < 2**63:
        return str(said)
    return printable(said[:WORD_CHARS_MAX]) if isinstance(said, str) else ""


def _numbered(words: Sequence[str]) -> tuple[tuple[str, ...], list[int]]:
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    return tuple(numbers), [numbers[word] for word in words]


def _detailed(is_finished: list[bool]) -> list[int]:
    """Positions of the entries that may matter: of others it is not said how large they were and where they were called."""
    first_kept = max(len(is_finished) - DETAILED_LAST, 0)
    return [at for at in range(first_kept) if not is_finished[at]] + list(range(first_kept, len(is_finished)))


def _detail(
    entries: list[dict[str, Any]], detailed: list[int], words_of: Callable[[list[dict[str, Any]]], list[str]]
) -> tuple[tuple[str, ...], list[int]]:
    """(words, number of its word for every entry), made for some of the entries because it takes long."""
    words, numbers = _numbered(words_of([entries[at] for at in detailed]))
    found = [NOWHERE] * len(entries)
    for at, number in zip(detailed, numbers, strict=True):
        found[at] = number
    return words, found


def _shapes(entries: list[dict[str, Any]]) -> list[str]:
    """Sizes and types, as every member of a group has to say them; once where what goes in is like what comes out."""
    made: dict[str, str] = {}
    found = []
    for entry in entries:
        said = [entry.get(name) for name in _SHAPE]
        key = repr(said)  # as good as the lists themselves, which cannot be keys
        if key not in made:
            given, taken = (f"{_sizes(sizes)} {_types(types)}".strip() for sizes, types in (said[:2], said[2:]))
            made[key] = given if given == taken else f"{given} → {taken}"
        found.append(made[key])
    return found


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


def _places(entries: list[dict[str, Any]]) -> list[str]:
    """The innermost line of the caller's own code: frames of torch itself say only which op it was."""
    made: dict[int, str] = {}  # by identity: a dump has a line of code once, however many entries were called there
    found = []
    for entry in entries:
        frames, place = entry.get("frames"), ""
        for frame in frames[:64] if isinstance(frames, list) else ():
            place = made[id(frame)] if id(frame) in made else made.setdefault(id(frame), _own_line(frame))
            if place:
                break
        found.append(place)
    return found


def _own_line(frame: Any) -> str:
    """The line, '' when it is none of the caller's own code."""
    if not isinstance(frame, dict) or TORCH_FRAME.search(file := _word(frame.get("filename"))):
        return ""
    return f"{file}:{_word(frame.get('line'))} in {_word(frame.get('name'))}"
