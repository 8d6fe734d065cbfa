"""One coverage-guided fuzzing process for the decoder: `python -m tests.eval.fuzz_decoder --inputs 1000 --seed 1`.

atheris (libFuzzer) instruments the code that reads trace batches and keeps every input that reaches something new; the
mutator is ours (fuzz_bytes.py), so most inputs get beyond the checksum. A failing input does not end the run: it is
written to a file, one per place that failed, and counted. Started by fuzz.py, twice; progress goes to stdout as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
import traceback
from pathlib import Path

import atheris
import django

PROGRESS_INPUTS = 50_000
INPUT_BYTES_MAX = 16_384

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
os.environ.setdefault("DIOGENES_SECRET_KEY", "only-for-fuzzing")
django.setup()

with atheris.instrument_imports(
    include=[
        "nccl_instrument.wire",
        "nccl_instrument.tables",
        "ingest.door.arrival",
        "ingest.door.impossible",
        "ingest.sums.rollup",
    ]
):
    from tests.eval.fuzz_checks import check_bytes
from tests.eval.fuzz_bytes import mutate  # noqa: E402
from tests.eval.fuzz_seeds import seeds  # noqa: E402


class Run:
    """Counts of one process. crashes: place that failed → the file with the first input that did."""

    def __init__(self, n_wanted: int, folder: Path) -> None:
        self.n_wanted, self.folder = n_wanted, folder
        self.n_inputs = self.n_accepted = 0
        self.crashes: dict[str, str] = {}
        self.began = time.monotonic()

    def one(self, raw: bytes) -> None:
        """Check one input."""
        try:
            self.n_accepted += check_bytes(raw)
        except Exception as error:
            self._keep(raw, error)
        self.n_inputs += 1
        if self.n_inputs % PROGRESS_INPUTS == 0 or self.n_inputs == self.n_wanted:
            self.say()

    def say(self) -> None:
        counts = {"inputs": self.n_inputs, "accepted": self.n_accepted, "crashes": self.crashes}
        print(json.dumps({**counts, "seconds": round(time.monotonic() - self.began, 1)}), flush=True)

    def _keep(self, raw: bytes, error: Exception) -> None:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno} {type(error).__name__}: {error}"[:200]
        if place not in self.crashes:
            path = self.folder / f"crash-{len(self.crashes)}-{os.getpid()}.bin"
            path.write_bytes(raw)
            self.crashes[place] = str(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="corpus and failing inputs")
    chosen = parser.parse_args()
    corpus = chosen.folder / f"corpus-{chosen.seed}"
    corpus.mkdir(parents=True)
    others = seeds()
    for number, raw in enumerate(others):
        (corpus / f"seed-{number:03}").write_bytes(raw)
    run = Run(chosen.inputs, chosen.folder)

    def mutated(raw: bytes, max_bytes: int, seed: int) -> bytes:
        draw = random.Random(seed)
        return mutate(raw, draw, draw.choice(others))[:max_bytes]

    flags = [f"-runs={chosen.inputs}", f"-seed={chosen.seed}", f"-max_len={INPUT_BYTES_MAX}", "-len_control=0"]
    flags += ["-timeout=60", "-rss_limit_mb=2048", "-verbosity=0", f"-artifact_prefix={chosen.folder}/died-"]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], run.one, custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
