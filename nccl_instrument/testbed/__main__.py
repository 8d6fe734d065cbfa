"""The testbed's command line: run a live job, control one that runs, sweep up after dead ones.

python -m nccl_instrument.testbed --seconds 60
python -m nccl_instrument.testbed control RUN_FOLDER inject nic_down --rank 3
python -m nccl_instrument.testbed sweep
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from nccl_instrument.command_line import run
from nccl_instrument.sizes import LayoutError

from .control import ask
from .faults import KINDS
from .job import Job
from .layout import Layout
from .leftovers import sweep
from .links import LinkError
from .physics import Physics, PhysicsError
from .settings import ENGINE, HERE, JobError, JobSettings

EXIT_REFUSED = 2


def main(words: list[str]) -> int:
    try:
        if words[:1] == ["control"]:
            return control_main(words[1:])
        if words[:1] == ["sweep"]:
            return sweep_main()
        return run_main(words[1:] if words[:1] == ["run"] else words)
    except (LayoutError, PhysicsError, JobError, LinkError) as error:
        print(f"testbed: {error}", file=sys.stderr)
        return EXIT_REFUSED


def run_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nccl_instrument.testbed", description=__doc__)
    for name, default in (("tp", 2), ("pp", 2), ("dp", 2), ("ranks-per-node", 2), ("nics-per-node", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--job", default="demo", help="job name, as DIOGENES_JOB")
    parser.add_argument("--transport", choices=("IB", "Socket"), default=os.environ.get("NCCL_NET") or "IB")
    parser.add_argument("--iterations", type=int, default=0, help="0: until stopped")
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--restart-count", type=int, default=0)
    parser.add_argument("--run-dir", type=Path, help="default: a temporary folder, removed at the end")
    parser.add_argument("--plugin", default="", help="path of the profiler plugin, or none")
    parser.add_argument("--profiler-version", choices=("", "3", "4", "5", "6", "7"), default="")
    parser.add_argument("--links", choices=("auto", "real", "paced"), default="auto")
    parser.add_argument("--segment-root", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--engine", type=Path, default=ENGINE)
    for field in dataclasses.fields(Physics):
        flag = "--" + field.name.replace("n_", "").replace("_", "-")
        parser.add_argument(flag, dest=field.name, type=type(field.default), default=field.default)
    return parser


def run_main(words: list[str]) -> int:
    options = run_parser().parse_args(words)
    layout = Layout(options.tp, options.pp, options.dp, options.ranks_per_node, options.nics_per_node)
    physics = Physics(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Physics)})
    for warning in layout.warnings():
        print(f"testbed: {warning}", flush=True)
    if options.engine == ENGINE:
        build_engine()
    settings = JobSettings(
        layout=layout,
        physics=physics,
        name=options.job,
        transport=options.transport,
        seed=options.seed,
        iterations=options.iterations,
        seconds=options.seconds,
        restart_count=options.restart_count,
        plugin=options.plugin,
        profiler_version=options.profiler_version,
        run_folder=options.run_dir.resolve() if options.run_dir else None,
        links=options.links,
        segment_root=options.segment_root,
        engine=options.engine,
    )
    return Job(settings).run()


def build_engine() -> None:
    """Builds the rank process when it is missing; make itself decides whether it is up to date."""
    if shutil.which("make") is None or shutil.which("cc") is None:
        if ENGINE.exists():
            return
        raise JobError("The testbed's rank process is not built, and there is no make or C compiler to build it.")
    done = subprocess.run(["make", "-s", "-C", str(HERE)], capture_output=True, text=True, check=False)
    if done.returncode != 0 and not ENGINE.exists():
        raise JobError(f"The testbed's rank process could not be built: {done.stderr.strip()[-500:]}")


def control_main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m nccl_instrument.testbed control")
    parser.add_argument("run_folder", type=Path)
    parser.add_argument("do", choices=("inject", "heal", "status", "stop"))
    parser.add_argument("fault", nargs="?", choices=tuple(KINDS))
    parser.add_argument("--rank", type=int)
    parser.add_argument("--amount", type=float, help="seconds, factor or share: depends on the fault")
    options = parser.parse_args(words)
    request: dict[str, Any] = {"do": options.do}
    request |= {k: getattr(options, k) for k in ("fault", "rank", "amount") if getattr(options, k) is not None}
    try:
        answer = ask(options.run_folder, request)
    except (OSError, ValueError) as error:
        print(f"testbed: no testbed answers for {options.run_folder}: {error}", file=sys.stderr)
        return EXIT_REFUSED
    print(json.dumps(answer, indent=1))
    return 0 if answer.get("ok") else 1


def sweep_main() -> int:
    for sentence in sweep() or ["nothing was left behind"]:
        print(f"testbed: {sentence}")
    return 0


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
