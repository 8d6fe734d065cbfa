"""Simulates a training job of 2 to 100,000 GPUs and writes, or streams, the batches its agents would send.

python -m nccl_instrument.simulate --gpus 1024 --tp 8 --pp 4 --dp 32 --fault nic_limited,victim=77,at=30 --out folder
python -m nccl_instrument.simulate --preset testbed --tp 2 --pp 2 --dp 2 --server http://localhost:8001 --token-file token
python -m nccl_instrument.simulate --list-faults
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nccl_instrument.command_line import run
from nccl_instrument.simulate.answers import Answers
from nccl_instrument.simulate.bar import Bar
from nccl_instrument.simulate.engine import EngineError
from nccl_instrument.simulate.faults import KINDS, Fault, FaultError, Scenario, make_fault
from nccl_instrument.simulate.files import in_order, write_batches, write_job, write_truth
from nccl_instrument.simulate.job import ORIGIN_NS, JobSettings, SimulatedJob
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED, Physics, PhysicsError, cluster_physics
from nccl_instrument.simulate.stream import StreamError, stream
from nccl_instrument.sizes import LayoutError
from nccl_instrument.wire import NAME_BYTES_MAX

EXIT_REFUSED: Final = 2
FAULT_WORDS: Final = ("at", "until", "victim", "amount")


def main(words: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0 done, 2 refused, with one sentence on stderr."""
    chosen = _parser().parse_args(words)
    if chosen.list_faults:
        print("\n".join(list_faults()))
        return 0
    try:
        settings = settings_of(chosen)
        return _run(settings, chosen)
    except (LayoutError, PhysicsError, FaultError, EngineError, StreamError, OSError) as error:
        print(f"simulate: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except KeyboardInterrupt:
        print("\nsimulate: stopped; what was written so far is whole batches.", file=sys.stderr)
        return EXIT_REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m nccl_instrument.simulate", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--gpus", type=int, help="number of ranks; must be tp × pp × dp where all of them are given")
    for name, what in (("tp", "tensor"), ("pp", "pipeline"), ("dp", "data"), ("ep", "expert")):
        add(f"--{name}", type=int, help=f"ranks of a {what}-parallel group")
    add("--ranks-per-node", type=int, help="default: 8, 2 with --preset testbed")
    add("--nics-per-node", type=int, default=0, help="default: one per rank")
    add("--seconds", type=float, default=60.0)
    add("--fault", action="append", default=[], metavar="NAME[,at=S][,until=S][,victim=N][,amount=X]",
        help="what happens; may be given again; --list-faults")  # fmt: skip
    add("--seed", type=int, default=1)
    add("--missing", type=float, default=0.0, help="share of batches that get lost")
    add("--late", type=float, default=0.0, help="batches are late by up to so many seconds")
    add("--job", default="simulated")
    add("--transport", choices=("IB", "Socket"), default="IB")
    add("--preset", choices=("cluster", "testbed"), default="cluster", help="where sizes and speeds come from")
    add("--out", type=Path, help="folder to write to")
    add("--server", help="address to stream to, as an agent would")
    add("--token-file", type=Path, help="token of an agent, for --server")
    add("--pace", type=float, default=1.0, help="with --server: so many seconds of the job in one of ours")
    add("--truth", type=Path, help="with --server: file for what really happened; in a folder it is truth.json")
    add("--stages", action=argparse.BooleanOptionalAction, default=True, help="a stage recorder in every training loop")
    add("--list-faults", action="store_true")
    add("--quiet", action="store_true", help="no progress bar")
    physics = parser.add_argument_group("physics", "each replaces one number of the preset")
    for field in dataclasses.fields(Physics):
        if isinstance(field.default, bool):
            physics.add_argument(_flag(field.name), dest=field.name, action=argparse.BooleanOptionalAction)
        else:
            physics.add_argument(_flag(field.name), dest=field.name, type=type(field.default))
    return parser


def _flag(name: str) -> str:
    return "--" + name.removeprefix("n_").replace("_", "-")


def settings_of(chosen: argparse.Namespace) -> JobSettings:
    """What the command line asks for. Raises the errors of layout, physics and faults."""
    if chosen.seconds <= 0 or chosen.pace <= 0:
        raise PhysicsError("--seconds and --pace must be more than 0.")
    if not 0 < len(chosen.job.encode()) <= NAME_BYTES_MAX or not chosen.job.isprintable():
        raise LayoutError(f"--job must be a printable name of at most {NAME_BYTES_MAX} bytes.")
    layout = _layout(chosen)
    preset = TESTBED if chosen.preset == "testbed" else cluster_physics(layout)
    given = {field.name: getattr(chosen, field.name) for field in dataclasses.fields(Physics)}
    physics = dataclasses.replace(preset, **{name: value for name, value in given.items() if value is not None})
    faults = tuple(parse_fault(text, layout, chosen.seconds, chosen.seed) for text in chosen.fault)
    scenario = Scenario(faults, chosen.seed, chosen.missing, chosen.late)
    origin_ns = _ends_now_ns(chosen.seconds, chosen.pace) if chosen.server else ORIGIN_NS
    return JobSettings(layout, physics, scenario, chosen.job, chosen.transport, origin_ns, chosen.stages)


def _ends_now_ns(seconds: float, pace: float) -> int:
    """When a streamed job began, so that none of its batches comes from the future; a file is the same whenever made."""
    return time.time_ns() - int(max(0.0, seconds * (1 - 1 / pace)) * 1e9)


def _layout(chosen: argparse.Namespace) -> Layout:
    """Sizes that were not given follow from --gpus: tp fills a node, pp is 1, dp is the rest."""
    per_node = chosen.ranks_per_node or (2 if chosen.preset == "testbed" else 8)
    gpus = chosen.gpus or (chosen.tp or 1) * (chosen.pp or 1) * (chosen.dp or 1)
    per_node = per_node if chosen.ranks_per_node or gpus >= per_node else gpus
    tp, pp = chosen.tp or min(per_node, gpus), chosen.pp or 1
    if min(tp, pp, gpus) < 1 or (chosen.dp is None and gpus % (tp * pp)):
        raise LayoutError(
            f"{gpus} GPUs cannot be divided into tp {tp} × pp {pp}: {gpus} / {tp * pp} is no whole number."
        )
    layout = Layout(tp, pp, chosen.dp or gpus // (tp * pp), chosen.ep or 1, per_node, chosen.nics_per_node)
    if layout.n_ranks != gpus:
        raise LayoutError(f"--gpus {gpus} is not tp {tp} × pp {pp} × dp {layout.dp} = {layout.n_ranks}.")
    return layout


def parse_fault(text: str, layout: Layout, seconds: float, seed: int) -> Fault:
    """A fault from NAME[,at=S][,until=S][,victim=N][,amount=X]. Raises FaultError."""
    name, *words = text.split(",")
    given: dict[str, float] = {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in FAULT_WORDS:
            raise FaultError(f"“{word}” in --fault {text}: it takes {', '.join(FAULT_WORDS)}.")
        try:
            given[key] = float(value)
        except ValueError:
            raise FaultError(f"“{value}” in --fault {text} is not a number.") from None
    victim = int(given["victim"]) if "victim" in given else None
    start_s = given.get("at", seconds / 2)
    return make_fault(name, layout, start_s, given.get("until"), victim, given.get("amount"), seed)


def list_faults() -> list[str]:
    """A line per fault: name, victim, component and kind, what it does, amount."""
    lines = []
    for name, kind in KINDS.items():
        amount = (
            f"; amount: {kind.amount} ({kind.default:g}, drawn from {kind.low:g} to {kind.high:g})"
            if kind.amount
            else ""
        )
        lines.append(f"{name:19} {kind.target:5} {kind.component:9} {kind.kind:25} {kind.says}{amount}")
    return lines


def _run(settings: JobSettings, chosen: argparse.Namespace) -> int:
    if (chosen.out is None) == (chosen.server is None):
        raise FaultError("Say where the batches go: --out FOLDER or --server URL with --token-file FILE.")
    if chosen.server and chosen.token_file is None:
        raise StreamError("--server needs --token-file.")
    if not chosen.quiet:
        print("\n".join([describe(settings), *settings.layout.warnings()]), file=sys.stderr)
    job, bar = SimulatedJob(settings), Bar(chosen.seconds, "s", is_quiet=chosen.quiet)
    batches = in_order(job.batches(chosen.seconds, bar.tell))
    try:
        if chosen.out is not None:
            write_job(chosen.out, settings, job.truth, chosen.seconds)
            n_batches, n_bytes = write_batches(chosen.out, batches)
            bar.end(f"{n_batches} batches, {n_bytes / 1e6:.1f} MB, {job.engine.n_served / 1e6:.1f} million steps")
        else:
            if chosen.truth is not None:
                write_truth(chosen.truth, job.truth)
            answering = Answers(job).of_node
            bar.end(stream(batches, settings.origin_ns, chosen.server, chosen.token_file, chosen.pace, answering))
    finally:
        job.close()
    return 0


def describe(settings: JobSettings) -> str:
    """The job in one line."""
    layout, physics = settings.layout, settings.physics
    experts = f" × EP {layout.ep}" if layout.ep > 1 else ""
    return (
        f"{layout.n_ranks} GPUs on {layout.n_nodes} nodes, TP {layout.tp} × PP {layout.pp} × DP {layout.dp}{experts}, "
        f"{layout.n_nics} NICs of {physics.link_mbit / 1000:g} Gbit/s, slots of {physics.slot_kib} KiB "
        f"({physics.slot_ns / 1e6:.2f} ms)"
    )


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
