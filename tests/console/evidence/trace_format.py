"""A strict check of Chrome's Trace Event Format, as its documentation has it and Perfetto's importer takes it.

The importer itself cannot be installed from a package index (the packages fetch its program from elsewhere), so what it
would drop or count as an error is refused here: events without what their phase needs, unmatched B and E, bars of one thread
that overlap without lying in each other, arrows without two ends or without a bar to hold them, metadata it does not know.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

FILE_BYTES_MAX = 512 * 2**20
"""Beyond it a browser tab does not open a trace."""
KEYS = {
    "traceEvents",
    "displayTimeUnit",
    "otherData",
    "systemTraceEvents",
    "powerTraceAsString",
    "stackFrames",
    "samples",
}
META = {
    "process_name": ("name", str), "thread_name": ("name", str), "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int), "thread_sort_index": ("sort_index", int),
}  # fmt: skip
KNOWN = set("BEXiMCsftbne")
US_MAX = 2**53
SLACK_US = 0.001
"""Times are rounded to nanoseconds."""

Event = dict[str, Any]
Bars = dict[tuple[int, int], list[tuple[float, float]]]


def check_trace(trace: Any, size_bytes: int = 0) -> None:
    """Raises AssertionError with the first thing that is wrong."""
    assert isinstance(trace, dict) and set(trace) <= KEYS, "the JSON object format has no such keys"
    assert trace.get("displayTimeUnit", "ms") in ("ms", "ns")
    assert size_bytes <= FILE_BYTES_MAX, "too large to be opened"
    events = trace["traceEvents"]
    assert isinstance(events, list)
    for one in events:
        _check_event(one)
    bars = _bars_of(events)
    for track, spans in bars.items():
        _check_nested(track, spans)
    _check_arrows(events, bars)
    _check_names(events)


def _check_event(one: Event) -> None:
    assert isinstance(one, dict) and one.get("ph") in KNOWN, f"no known phase: {one}"
    assert isinstance(one.get("name"), str) and one["name"], f"no name: {one}"
    assert _is_whole(one.get("pid")), f"no process: {one}"
    assert _is_whole(one.get("tid")), f"no thread: {one}"
    assert isinstance(one.get("args", {}), dict), f"arguments are an object: {one}"
    if one["ph"] == "M":
        key, kind = META[one["name"]]
        assert isinstance(one["args"][key], kind) and set(one["args"]) == {key}, f"metadata says something else: {one}"
        return
    assert _is_time(one.get("ts")), f"no time: {one}"
    if one["ph"] == "X":
        assert _is_time(one.get("dur")), f"no duration: {one}"
    if one["ph"] == "i":
        assert one.get("s", "t") in ("g", "p", "t"), f"no scope: {one}"
    if one["ph"] in "stfbne":
        assert isinstance(one.get("id"), (int, str)) and isinstance(one.get("cat"), str), f"no identifier: {one}"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_time(value: Any) -> bool:
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and 0 <= value < US_MAX
    )


def _bars_of(events: list[Event]) -> Bars:
    """(from, to) of every bar by track: X as they are, B with its E, which must come in order and match."""
    bars: Bars = defaultdict(list)
    open_bars: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for one in events:
        track = one["pid"], one["tid"]
        if one["ph"] == "X":
            bars[track].append((one["ts"], one["ts"] + one["dur"]))
        elif one["ph"] == "B":
            assert not open_bars[track] or open_bars[track][-1]["ts"] <= one["ts"], f"times go back: {one}"
            open_bars[track].append(one)
        elif one["ph"] == "E":
            assert open_bars[track], f"ends what did not begin: {one}"
            began = open_bars[track].pop()
            assert began["name"] == one["name"] and began["ts"] <= one["ts"], f"ends another: {one}"
            bars[track].append((began["ts"], one["ts"]))
    assert not any(open_bars.values()), "bars that never end"
    return bars


def _check_nested(track: tuple[int, int], spans: list[tuple[float, float]]) -> None:
    """Each lies beside the others of its thread or within one: else the importer drops it."""
    around: list[float] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        while around and around[-1] <= start + SLACK_US:
            around.pop()
        assert not around or end <= around[-1] + SLACK_US, f"bars overlap on {track}: {start}–{end}"
        around.append(end)


def _check_arrows(events: list[Event], bars: Bars) -> None:
    """Every arrow begins once and ends once, not before it began, each end within a bar of its thread."""
    ends: dict[tuple[str, Any], list[Event]] = defaultdict(list)
    for one in events:
        if one["ph"] in "stf":
            ends[one["cat"], one["id"]].append(one)
    for arrow, found in ends.items():
        phases = [one["ph"] for one in found]
        assert phases[0] == "s" and phases[-1] == "f" and set(phases[1:-1]) <= {"t"}, f"{arrow} has not two ends"
        assert len({one["name"] for one in found}) == 1, f"{arrow} has several names"
        assert found[0]["ts"] <= found[-1]["ts"], f"{arrow} ends before it begins"
        for one in found:
            assert one["ph"] == "s" or one.get("bp", "e") == "e", f"{arrow} binds to a later bar"
            held = bars.get((one["pid"], one["tid"]), [])
            assert any(start <= one["ts"] <= end for start, end in held), f"{arrow}: no bar holds {one}"


def _check_names(events: list[Event]) -> None:
    """Every process and thread with bars is named, once."""
    named: dict[tuple[Any, ...], int] = defaultdict(int)
    used = set()
    for one in events:
        if one["ph"] == "M":
            named[(one["name"], one["pid"], *([one["tid"]] if one["name"].startswith("thread") else []))] += 1
        elif one["ph"] in "XBE":
            used.add((one["pid"], one["tid"]))
    assert all(n == 1 for n in named.values()), "named twice"
    for pid, tid in used:
        assert ("process_name", pid) in named, f"process {pid} has no name"
        assert ("thread_name", pid, tid) in named, f"thread {pid}/{tid} has no name"
