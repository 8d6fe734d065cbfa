"""Colour layers of the topology grid: one value per rank, beside the grid's states.

Pure: how a layer is made of values is here, where the values come from in layers_lag.py, layers_wire.py and layers_kept.py.
A rank of which nothing is known has no value and a note that says why; it is never given that of a healthy one.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

By = Literal["op_lag", "stack_class", "bandwidth", "stage_lateness"]
LAYERS: Final[tuple[By, ...]] = ("op_lag", "stack_class", "bandwidth", "stage_lateness")
UNITS: Final[dict[By, str]] = {"op_lag": "ops", "stack_class": "", "bandwidth": "B/s", "stage_lateness": "ms"}
DIGITS: Final = 5
_LEVEL: Final = 1

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Numbered:
    """A column of texts, each text once. at: (n,) places in texts."""

    texts: list[str]
    at: list[int]


@dataclass(frozen=True, slots=True)
class LayerClass:
    """A class of ranks whose stacks are the same. said: what they do; is_most: what most do, which stands out least."""

    said: str
    n_ranks: int
    is_most: bool


@dataclass(frozen=True, slots=True)
class Layer:
    """Columns by rank 0 … n − 1. value: in `unit`, of stack_class a place in `classes`; null unknown, and `note` says why.

    at: when it was measured, null where nothing is known; until: the newest part, where parts are of different times. low,
    middle, high: of the known values; full: where the colour scale ends, at least what is worth a colour. says: how it was
    measured. nothing: why of no rank anything is known, "" else. is_settled: asked again it says the same.
    """

    by: By
    unit: str
    at: str | None
    until: str | None
    says: str
    nothing: str
    n_unknown: int
    low: float | None
    middle: float | None
    high: float | None
    full: float | None
    value: list[float | None]
    note: Numbered
    classes: list[LayerClass]
    is_settled: bool


@dataclass(frozen=True, slots=True)
class Values:
    """What was found out. value: (n,), NaN unknown; note: (n,) places in texts. at_ns: 0 when nothing was measured.

    until_ns: of the newest part, where parts are of different times, else 0. is_open: more of that moment may still come.
    """

    value: Floats
    note: Ints
    texts: tuple[str, ...]
    at_ns: int
    says: str
    nothing: str = ""
    full_min: float = 0.0
    classes: tuple[LayerClass, ...] = field(default=())
    until_ns: int = 0
    is_open: bool = False


class Notes:
    """Notes of ranks while they are found out: texts once each."""

    def __init__(self, n_ranks: int, first: str = "") -> None:
        self.at = np.zeros(n_ranks, np.int64)
        self._place = {first: 0}

    def mark(self, ranks: Ints | Sequence[int], text: str) -> None:
        self.at[np.asarray(ranks, np.int64)] = self._place.setdefault(text, len(self._place))

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self._place)


def nothing_known(n_ranks: int, why: str) -> Values:
    """Of no rank anything: all are drawn as unknown."""
    return Values(np.full(n_ranks, np.nan), np.zeros(n_ranks, np.int64), (why,), 0, "", why)


def make_layer(by: By, found: Values, at: str | None, is_settled: bool, until: str | None = None) -> Layer:
    """The layer as it is answered. at, until: found.at_ns and until_ns as people write them."""
    known = found.value[np.isfinite(found.value)]
    low = middle = high = full = None
    if len(known) and by != "stack_class":
        low, middle, high = (_rounded(value) for value in (known.min(), np.median(known), known.max()))
        full = max(high, found.full_min)
    return Layer(
        by=by, unit=UNITS[by], at=at if found.at_ns else None, until=until if found.until_ns else None,
        says=found.says, nothing=found.nothing,
        n_unknown=len(found.value) - len(known), low=low, middle=middle, high=high, full=full,
        value=[_rounded(value) if np.isfinite(value) else None for value in found.value.tolist()],
        note=Numbered(list(found.texts), found.note.tolist()), classes=list(found.classes), is_settled=is_settled,
    )  # fmt: skip


def pack_layer(layer: Layer) -> bytes:
    """Gzipped JSON."""
    said = {**_fields(layer), "note": _fields(layer.note), "classes": [asdict(one) for one in layer.classes]}
    return gzip.compress(json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode(), _LEVEL)


def _fields(one: Layer | Numbered) -> dict[str, Any]:
    """Without a copy of what they hold, value by value, as asdict makes it."""
    return {known.name: getattr(one, known.name) for known in fields(one)}


def _rounded(value: float) -> float:
    """Counts as they are, other numbers to DIGITS: there may be a hundred thousand."""
    short = value if value == round(value) else float(f"{value:.{DIGITS}g}")
    return int(short) if short == round(short) else short
