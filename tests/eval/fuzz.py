"""Suite `fuzz`: hostile input at the decoder, at ingest's port, at the console's API; nothing but a clear 4xx.

Two coverage-guided processes take the decoder (fuzz_decoder.py), another one the loaders of dumps (fuzz_loaders.py); then a
stack with shipped defaults gets mutated batches and broken HTTP (fuzz_endpoint.py), random REST requests (fuzz_rest.py) and
patient abuse (fuzz_abuse.py), and everything it accepted is looked at as the console would (fuzz_looks.py). Run by
`make eval SUITE=fuzz [SEED=n]`; the last line is one JSON object, the exit status is 1 when anything was wrong. For a short run:
`python -m tests.eval.fuzz --decoder 20000 --endpoint 2000 --rest 300 --windows 50 --loaders 500`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.eval.fuzz_abuse import run_abuses
from tests.eval.fuzz_endpoint import Attack, Tally, is_alive
from tests.eval.fuzz_rest import run_rest
from tests.eval.fuzz_windows import check_window, garbled_window
from tests.eval.stack import ROOT, RunningStack

DECODER_INPUTS: Final = 1_000_000
ENDPOINT_INPUTS: Final = 20_000
REST_INPUTS: Final = 3_000
WINDOW_INPUTS: Final = 1_000
LOADER_INPUTS: Final = 10_000
PROCESSES: Final = 2
WARM_UP_SHARE: Final = 0.1
RSS_GROWTH_MB_MAX: Final = 64.0  # after the first tenth of the inputs, all ingest processes together
MUST_BE_NONE: Final = ("crashes", "server_errors", "hung", "unanswered", "abuses_failed", "failed_looks")


def fuzz_decoder(n_inputs: int, seed: int, kept: Path) -> dict[str, Any]:
    """Run the decoder's fuzzers side by side; inputs, accepted, crashes (place → file), seconds."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="diogenes-fuzz-") as scratch:
        running = []
        for k in range(PROCESSES):
            asked = ["--inputs", str(n_inputs // PROCESSES), "--seed", str(seed + k + 1), "--folder", str(kept)]
            log = (Path(scratch) / f"log-{k}").open("w+")
            command = [sys.executable, "-m", "tests.eval.fuzz_decoder", *asked]
            running.append((subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT), log))
        _wait(running)
        total: dict[str, Any] = {"inputs": 0, "accepted": 0, "crashes": {}}
        for process, log in running:
            _add(total, process, log)
    return {**total, "seconds": round(time.monotonic() - began, 1)}


def _wait(running: list[Any]) -> None:
    said = ""
    while any(process.poll() is None for process, _ in running):
        time.sleep(1.0)
        now = "  ".join(str(_last(log).get("inputs", 0)) for _, log in running)
        if now != said:
            said = now
            print(f"decoder inputs: {now}", flush=True)


def _add(total: dict[str, Any], process: subprocess.Popen[str], log: Any) -> None:
    last = _last(log)
    total["inputs"] += last.get("inputs", 0)
    total["accepted"] += last.get("accepted", 0)
    total["crashes"].update(last.get("crashes", {}))
    if process.returncode:  # killed by libFuzzer: out of memory, or an input that takes for ever
        log.seek(0)
        total["crashes"][f"fuzzer ended with {process.returncode}"] = log.read()[-2000:]


def _last(log: Any) -> dict[str, Any]:
    log.flush()
    said = [line for line in Path(log.name).read_text(errors="replace").splitlines() if line.startswith('{"inputs"')]
    found: dict[str, Any] = json.loads(said[-1]) if said else {}
    return found


def fuzz_windows(n_inputs: int, seed: int) -> dict[str, str]:
    """Look at windows with garbage in them; crashes, by the place that raised."""
    crashes: dict[str, str] = {}
    for number in range(n_inputs):
        try:
            check_window(garbled_window(random.Random(seed * 100_000 + number)))
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(last.filename).name}:{last.lineno} {type(error).__name__}: {error}"[:200]
            crashes.setdefault(place, f"window {number} of seed {seed}")
    return crashes


def fuzz_loaders(n_inputs: int, seed: int, kept: Path) -> dict[str, Any]:
    """What fuzz_loaders.py says, which limits its own memory."""
    asked = ["--inputs", str(n_inputs), "--seed", str(seed), "--folder", str(kept)]
    command = [sys.executable, "-m", "tests.eval.fuzz_loaders", *asked]
    done = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        return {"inputs": 0, "crashes": {f"fuzz_loaders ended with {done.returncode}": ""}}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def attack_endpoint(stack: RunningStack, n_inputs: int, seed: int) -> tuple[Tally, float]:
    """What was sent and heard, and by how many MB ingest's memory grew after the first tenth of it."""
    port, token = stack.port + 1, stack.agent_token_file.read_text().strip()
    warm = max(int(n_inputs * WARM_UP_SHARE), 100)
    tally = Attack(port, token, seed, warm).run()
    before = ingest_rss_mb(stack)
    print(f"endpoint: {warm} inputs, {dict(tally.statuses)}; ingest has {before:.0f} MB", flush=True)
    rest = Attack(port, token, seed + 1, max(n_inputs - warm, 0)).run()
    tally.statuses += rest.statuses
    tally.errors += rest.errors
    tally.hung += rest.hung
    tally.unanswered += rest.unanswered
    tally.cut_off += rest.cut_off
    tally.slowest_s = max(tally.slowest_s, rest.slowest_s)
    assert is_alive(port), "ingest does not answer any more"
    return tally, ingest_rss_mb(stack) - before


def _command_line(pid: int) -> bytes:
    """Empty for a process that has ended meanwhile: parts of the stack come and go."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def ingest_rss_mb(stack: RunningStack) -> float:
    """Resident memory of all ingest processes of the stack."""
    assert stack.process is not None
    found = [pid for pid in _children(stack.process.pid) if b"ingest.serve" in _command_line(pid)]
    assert found, "the stack has no ingest process"
    return sum(_rss_kb(pid) for pid in found) / 1024


def _children(pid: int) -> list[int]:
    found = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [one for child in tasks.read_text().split() for one in (int(child), *_children(int(child)))]
    return found


def _rss_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def look_at_all(stack: RunningStack, seed: int) -> dict[str, Any]:
    """What fuzz_looks.py says of everything that was accepted."""
    left_out = ("DATABASE_URL", "REDIS_URL")
    env = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(
        [sys.executable, "-m", "tests.eval.fuzz_looks", str(seed)],
        cwd=ROOT, env={**env, "DIOGENES_DATA": str(stack.data)}, text=True, capture_output=True, check=False,
    )  # fmt: skip
    print(done.stderr[-6000:], file=sys.stderr)
    if done.returncode:
        return {"crashes": {"fuzz_looks ended": done.stderr[-1000:]}}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def failed_looks(stack: RunningStack) -> int:
    """Looks of the running stack's own worker that raised."""
    jobs = stack.get("jobs")["jobs"]
    looks = [look for job in jobs for look in stack.get(f"jobs/{job['id']}")["looks"]]
    return sum(look["kind"] == "failed" for look in looks)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=os.environ.get("SEED") or random.randrange(10**6))
    parser.add_argument("--decoder", type=int, default=DECODER_INPUTS)
    parser.add_argument("--endpoint", type=int, default=ENDPOINT_INPUTS)
    parser.add_argument("--rest", type=int, default=REST_INPUTS)
    parser.add_argument("--windows", type=int, default=WINDOW_INPUTS)
    parser.add_argument("--loaders", type=int, default=LOADER_INPUTS)
    parser.add_argument("--no-abuse", action="store_true")
    chosen = parser.parse_args()
    print(f"fuzz: seed {chosen.seed}; the decoder's million takes about five minutes, the rest five more", flush=True)
    kept = Path(tempfile.mkdtemp(prefix="diogenes-fuzz-kept-"))
    decoder = fuzz_decoder(chosen.decoder, chosen.seed, kept) if chosen.decoder else {"inputs": 0, "crashes": {}}
    print(f"decoder: {decoder}", flush=True)
    loaders = fuzz_loaders(chosen.loaders, chosen.seed, kept)
    print(f"loaders: {loaders}", flush=True)
    if not decoder["crashes"] and not loaders["crashes"]:
        shutil.rmtree(kept)
    garbled = fuzz_windows(chosen.windows, chosen.seed)
    print(f"windows: {chosen.windows} looked at, crashes {garbled}", flush=True)
    with RunningStack() as stack:
        result = attack(stack, chosen)
    crashes = {**decoder["crashes"], **loaders["crashes"], **garbled, **result.pop("look_crashes")}
    result["window_inputs"], result["loader_inputs"] = chosen.windows, loaders["inputs"]
    head = {"suite": "fuzz", "seed": chosen.seed, "settings_overridden": result.pop("settings_overridden")}
    counts = {
        "decoder_inputs": decoder["inputs"],
        "endpoint_inputs": result.pop("endpoint_inputs"),
        "crashes": len(crashes),
    }
    verdict = {**head, **counts, **result, "decoder": decoder, "loaders": loaders, "crashed": crashes}
    for sentence in faults_in(verdict):
        print(f"FAULT {sentence}", flush=True)
    print(json.dumps(verdict))
    return 1 if faults_in(verdict) else 0


def faults_in(verdict: Mapping[str, Any]) -> list[str]:
    """What must not be, in sentences."""
    found = [f"{verdict[name]} {name}" for name in MUST_BE_NONE if verdict[name]]
    if verdict["rss_growth_mb"] > RSS_GROWTH_MB_MAX:
        found.append(f"ingest grew by {verdict['rss_growth_mb']} MB, at most {RSS_GROWTH_MB_MAX:.0f} may be")
    return found


def attack(stack: RunningStack, chosen: argparse.Namespace) -> dict[str, Any]:
    """Everything that is done to a running stack."""
    overridden = stack.settings_overridden()
    tally, grown = attack_endpoint(stack, chosen.endpoint, chosen.seed)
    print(f"endpoint: {dict(tally.statuses)}, {tally.hung} hung; ingest grew by {grown:.1f} MB", flush=True)
    said, rest_errors = run_rest(stack.port, stack.token, chosen.seed, chosen.rest)
    print(f"rest: {dict(said)}", flush=True)
    abuses = {} if chosen.no_abuse else run_abuses(stack.port + 1, stack.agent_token_file.read_text().strip())
    looks = look_at_all(stack, chosen.seed)
    print(f"looks: {looks}", flush=True)
    for error in (*tally.errors, *rest_errors):
        print(error, flush=True)
    return {
        "settings_overridden": overridden,
        "endpoint_inputs": tally.n_inputs,
        "server_errors": tally.n_server_errors + sum(n for status, n in said.items() if status >= 500 or status == -1),
        "rss_growth_mb": round(grown, 1),
        "hung": tally.hung,
        "unanswered": tally.unanswered,
        "cut_off": tally.cut_off,
        "slowest_s": round(tally.slowest_s, 2),
        "endpoint_statuses": dict(sorted(tally.statuses.items())),
        "rest_inputs": sum(said.values()),
        "rest_statuses": dict(sorted(said.items())),
        "abuses_failed": {name: how for name, how in abuses.items() if how != "ok"},
        "abuses": len(abuses),
        "failed_looks": failed_looks(stack),
        "looks": {name: n for name, n in looks.items() if name != "crashes"},
        "look_crashes": looks["crashes"],
    }


if __name__ == "__main__":
    sys.exit(main())
