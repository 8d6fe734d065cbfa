"""Hostile dumps at every loader: `python -m tests.eval.fuzz_loaders --inputs 20000 --seed 1`, started by fuzz.py.

Stacks, RAS reports, Flight Recorder dumps, bodies of dumps and whole bundles are changed at random, byte by byte and value
by value, read, and what can be read is diagnosed. Nothing but the loader's own error may come out, in seconds, within the
memory a reading process may take. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import io
import json
import pickle
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nccl_instrument.dumps import RECORDER, BadDump, Dumps, Part, decode_dumps, encode_dumps
from rca.bundle.contents import read_contents
from rca.bundle.diagnosis import diagnose_bundle, dumped_in
from rca.bundle.unpack import BadBundle, Unpacked
from rca.findings import to_json
from rca.flight_recorder import analysis as recorder
from rca.flight_recorder import reading
from rca.flight_recorder.recording import merge
from rca.ras import analysis as ras
from rca.ras.reading import BadRas, read_ras
from rca.stacks.analysis import findings_of
from rca.stacks.classes import classes_of, prefix_tree
from rca.stacks.reading import BadStacks, read_stacks
from tests.rca.flight_recorder.here import read_dump
from tests.rca.flight_recorder.real import dumps_of
from tests.rca.ras.test_ras import TEXT, comm, gone, member, report
from tests.rca.stacks.real import raw_dumps

MEMORY_BYTES: Final = 4 * 2**30
INPUT_SECONDS: Final = 20
PROGRESS_INPUTS: Final = 5_000
BUNDLE_EVERY: Final = 50  # a bundle is read in a process of its own, which takes as long as hundreds of others
ODD: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 2**31, 2**63, -(2**63) - 1, 10**40, 1e308, float("nan"), float("inf"), "", "\0", "9" * 400, "é" * 9,
    [], {}, [[]], [None], {"": None}, "[0, 1", b"\xff", (1, 2), [[-1, 2**70]], "nccl:send 0->99999999", "scheduled",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Loader:
    """A loader: what it reads, what it may raise, what it is given at first, and how values become bytes."""

    read: Callable[[bytes], None]
    refusals: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]
    parse: Callable[[bytes], Any] | None = None
    write: Callable[[Any], bytes] | None = None


def _stacks(raw: bytes) -> None:
    one = read_stacks(raw, 3)
    other = read_stacks(next(iter(raw_dumps().values())), 4)
    findings_of([one, other], [one])
    prefix_tree(classes_of([one, other]))


def _ras(raw: bytes) -> None:
    json.dumps([to_json(one) for one in ras.findings_of(read_ras(raw))])


def _recording(raw: bytes) -> None:
    others = [read_dump(one, rank) for rank, (_, one) in enumerate(dumps_of("skip")[:3])]
    state = recorder.waiting_of(merge([*others, read_dump(raw, 3)]), None, {5: "no answer"})
    found = recorder.findings_of(state)
    json.dumps([to_json(one) for one in found], allow_nan=False)
    recorder.edges_of(state, found[0].culprits if found else (), 10)


def _bundle(raw: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".zip") as file:
        file.write(raw)
        file.flush()
        json.dumps(
            to_json(diagnose_bundle(dumped_in(read_contents(Unpacked(Path(file.name)))), "job")), allow_nan=False
        )


def _body(raw: bytes) -> None:
    for part in decode_dumps(raw).parts:
        assert len(part.raw) == part.length


def loaders() -> dict[str, Loader]:
    stacks = tuple(raw_dumps().values())
    text = tuple(one for one in stacks if not one.lstrip().startswith(b"["))
    missing = report(comm([member(0, AllReduce=3), member(1, AllReduce=4)], [gone(2, dead=True)]))
    ended = b"\nended in an op by RuntimeError: Connection closed by peer"
    pickles = tuple(raw + end for case in ("skip", "order") for _, raw in dumps_of(case) for end in (b"", ended))
    as_json = tuple(raw for _, raw in dumps_of("skip", is_json=True)) or (b'{"version": "2.10", "entries": []}',)
    body = encode_dumps(Dumps("j", "n", "0" * 32, 1, 1, (Part(RECORDER, 0, 1, 0, "", 1, "", "it").holding(b"x" * 99),)))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for name, raw in [*dumps_of("skip"), ("rank1.json", stacks[0]), ("ras", TEXT.format(many=3, few=2).encode())]:
            made.writestr(name, raw)
    return {
        "stacks as JSON": Loader(_stacks, (BadStacks,), stacks, json.loads, _json_bytes),
        "stacks as text": Loader(_stacks, (BadStacks,), text or stacks),
        "RAS as JSON": Loader(_ras, (BadRas,), (missing,), json.loads, _json_bytes),
        "RAS as text": Loader(_ras, (BadRas,), (TEXT.format(many=3, few=2).encode(),)),
        "recorder as pickle": Loader(_recording, (reading.BadDump,), pickles, pickle.loads, _pickle_bytes),
        "recorder as JSON": Loader(_recording, (reading.BadDump,), as_json, json.loads, _json_bytes),
        "body of dumps": Loader(_body, (BadDump,), (body,)),
        "bundle": Loader(_bundle, (BadBundle,), (archive.getvalue(),)),
    }


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, default=repr).encode("utf-8", "surrogatepass")


def _pickle_bytes(value: Any) -> bytes:
    return pickle.dumps(value, protocol=2)


def mutated(loader: Loader, draw: random.Random) -> bytes:
    """A seed with some bytes, or some values, that are not as they should be."""
    raw = draw.choice(loader.seeds)
    if loader.parse is not None and loader.write is not None and draw.random() < 0.6:
        try:
            value = loader.parse(raw)
        except ValueError:
            return _bytes_changed(raw, draw)
        for _ in range(draw.choice((1, 1, 2, 5))):
            value = _value_changed(value, draw)
        return loader.write(value)
    return _bytes_changed(raw, draw)


def _bytes_changed(raw: bytes, draw: random.Random) -> bytes:
    found = bytearray(raw)
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        at, length = draw.randrange(len(found) + 1), draw.choice((1, 1, 2, 8, 64))
        how = draw.randrange(5)
        if how == 0:
            found[at : at + length] = draw.randbytes(length)
        elif how == 1:
            del found[at : at + length * 8]
        elif how == 2:
            found[at:at] = found[at : at + length] * draw.choice((1, 3, 50))
        elif how == 3:
            found[at:at] = draw.choice(
                (b"\x8c\x08builtins", b"[" * 5000, b'{"a":' * 5000, b"\xff\xfe", b"1" * 5000, b"\n")
            )
        else:
            del found[at:]
        if not found:
            break
    return bytes(found)


def _value_changed(value: Any, draw: random.Random) -> Any:
    """One value somewhere inside replaced, left out or repeated."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        if draw.random() < 0.15:
            return {name: one for name, one in value.items() if name != key}
        return {**value, key: _value_changed(value[key], draw)}
    if isinstance(value, list | tuple) and value and draw.random() < 0.9:
        # The newest entries are those that are looked at.
        at = (
            len(value) - 1 - min(int(draw.expovariate(0.2)), len(value) - 1)
            if draw.random() < 0.7
            else draw.randrange(len(value))
        )
        changed = [_value_changed(one, draw) if place == at else one for place, one in enumerate(value)]
        return type(value)(changed * draw.choice((1, 1, 1, 2)))
    return draw.choice(ODD)


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """TimeoutError when the block takes longer."""

    def over(number: int, frame: Any) -> None:
        raise TimeoutError(f"takes more than {seconds} s")

    signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def run(n_inputs: int, seed: int, kept: Path) -> dict[str, Any]:
    """Inputs by loader, how many could be read, and crashes: place → the file with the first input that did."""
    known, tried, read, crashes = loaders(), dict[str, int](), dict[str, int](), dict[str, str]()
    quick = [name for name in known if name != "bundle"]
    began = time.monotonic()
    for number in range(n_inputs):
        draw = random.Random(f"{seed}/{number}")
        name = "bundle" if number % BUNDLE_EVERY == 0 else draw.choice(quick)
        raw = mutated(known[name], draw)
        tried[name] = tried.get(name, 0) + 1
        if number % PROGRESS_INPUTS == PROGRESS_INPUTS - 1:
            print(f"loader inputs: {number + 1} of {n_inputs}, {len(crashes)} crashes", file=sys.stderr, flush=True)
        try:
            with at_most(INPUT_SECONDS):
                known[name].read(raw)
            read[name] = read.get(name, 0) + 1
        except Exception as error:
            if isinstance(error, known[name].refusals) and str(error):
                continue
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{name}: {Path(last.filename).name}:{last.lineno} {type(error).__name__}: {error}"[:200]
            if place not in crashes:
                crashes[place] = str(kept / f"loader-{len(crashes)}-{number}.bin")
                Path(crashes[place]).write_bytes(raw)
    seconds = round(time.monotonic() - began, 1)
    return {"inputs": n_inputs, "tried": tried, "read": read, "crashes": crashes, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="for inputs that failed")
    chosen = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    kept = chosen.folder or Path(tempfile.mkdtemp(prefix="diogenes-fuzz-kept-"))
    print(json.dumps(run(chosen.inputs, chosen.seed, kept)))


if __name__ == "__main__":
    main()
