"""Bytes by epoch of transfers whose beginning and end are known (src/spread.c), for the plugin's records of chunks sent.

A chunk of 512 KiB takes longer than an epoch, so its bytes are shared out over the time it was under way: from when it was
handed over, or its predecessor on the same flow was through, until it was through itself.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.measure.meter import LIBRARY, MeterError

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]

SPAN: Final = np.dtype([("flow", "<u4"), ("reserved", "<u4"), ("from_ns", "<i8"), ("to_ns", "<i8"), ("n_bytes", "<u8")])
CELL: Final = np.dtype([("flow", "<u4"), ("reserved", "<u4"), ("epoch", "<i8"), ("n_bytes", "<u8")])
EPOCH_NS_LEAST: Final = 8_000
EPOCH_NS_MOST: Final = 1_000_000


def spread(spans: Rows, epoch_ns: int) -> Rows:
    """(n,) CELL: bytes by flow and epoch, rising in both, from (m,) SPAN sorted by flow and time, which do not overlap in a flow.

    An epoch's number is its time divided by epoch_ns (8,000 to 1,000,000: else ValueError). Raises MeterError when the
    library is not there.
    """
    if not EPOCH_NS_LEAST <= epoch_ns <= EPOCH_NS_MOST:
        raise ValueError(f"epochs are {EPOCH_NS_LEAST} to {EPOCH_NS_MOST} ns, not {epoch_ns}")
    spans = np.ascontiguousarray(spans, SPAN)
    n_most = int((np.maximum(spans["to_ns"] - spans["from_ns"], 0) // epoch_ns + 2).sum())
    cells = np.empty(n_most, CELL)
    found = int(_function()(spans.ctypes.data, len(spans), epoch_ns, cells.ctypes.data, n_most))
    return cells[:found]


@cache
def _function() -> ctypes._NamedFuncPointer:
    try:
        function = ctypes.CDLL(str(LIBRARY)).dgm_spread
    except (OSError, AttributeError) as error:
        raise MeterError(f"{LIBRARY.name} is not built: make build") from error
    function.restype = ctypes.c_uint64
    function.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64]
    return function
