"""Look at everything that hostile agents got accepted: `python -m tests.eval.fuzz_looks`, beside a running stack.

Every attempt is read as the console reads it: windows, triggers, rules whether a trigger fires or not, grid, lanes,
roll-ups, the saved file. Whatever raises is a crash; each place that raised is told once. DIOGENES_DATA says where the
stack is. The last line is one JSON object.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
django.setup()

from django.db import connection  # noqa: E402

from ingest.models import Attempt  # noqa: E402
from ingest.read import latest_data_ns, read_nodes, read_rollups, read_window  # noqa: E402
from ingest.window import Window, load_window, save_window  # noqa: E402
from rca.diagnose import diagnose  # noqa: E402
from rca.findings import Symptom, SymptomKind, diagnosis_from_json, to_json  # noqa: E402
from rca.settings import DEFAULT  # noqa: E402
from rca.triggers.look import look  # noqa: E402
from rca.triggers.normal import Normal  # noqa: E402

SECOND = 1_000_000_000
LOOK_NS = 15 * SECOND
LOOKS_PER_ATTEMPT = 4


class Looks:
    """What was looked at and what raised: place → how often."""

    def __init__(self) -> None:
        self.n_looks = self.n_rows = self.n_symptoms = self.n_findings = 0
        self.crashes: dict[str, int] = {}

    def attempt(self, attempt: Attempt, draw: random.Random) -> None:
        newest = latest_data_ns(attempt.pk)
        for end_ns in [newest + 1, *_ends(attempt.pk, draw)]:
            self._try(lambda end_ns=end_ns: self._window(read_window(attempt.pk, end_ns - LOOK_NS, end_ns)))
        self._try(lambda: read_nodes(attempt.pk))
        self._try(lambda: read_rollups(attempt.pk, -(2**62), 2**62))

    def _window(self, window: Window) -> None:
        self.n_looks += 1
        self.n_rows += sum(len(rows) for rows in window.tables.values())
        seen = look(window, Normal(), DEFAULT)
        self.n_symptoms += len(seen.symptoms)
        asked = Symptom(
            SymptomKind.EXTERNAL, window.job, window.attempt, window.start_ns, window.now_ns, 0, (), "Asked."
        )
        for symptom in (*seen.symptoms, asked):
            diagnosis = diagnose(window, symptom, DEFAULT)
            self.n_findings += len(diagnosis.findings)
            text = json.dumps(to_json(diagnosis), allow_nan=False)
            assert to_json(diagnosis_from_json(json.loads(text))) == json.loads(text)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "window.npz"
            save_window(path, window)
            load_window(path)

    def _try(self, work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception as error:
            last = [
                frame for frame in traceback.extract_tb(error.__traceback__) if "/site-packages/" not in frame.filename
            ]
            place = f"{Path(last[-1].filename).name}:{last[-1].lineno} {type(error).__name__}: {error}"[:300]
            self.crashes[place] = self.crashes.get(place, 0) + 1
            if self.crashes[place] == 1:
                traceback.print_exc()


def _ends(attempt_id: int, draw: random.Random) -> list[int]:
    """Ends of some stored batches."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT end_ns FROM ingest_trace_batch WHERE attempt_id = %s", [attempt_id])
        ends = sorted(row[0] + 1 for row in cursor.fetchall())
    return draw.sample(ends, min(len(ends), LOOKS_PER_ATTEMPT))


def main() -> int:
    draw, looks = random.Random(int(sys.argv[1])), Looks()
    attempts = list(Attempt.objects.order_by("pk"))
    for attempt in attempts:
        looks.attempt(attempt, draw)
    counts = {name: getattr(looks, name) for name in ("n_looks", "n_rows", "n_symptoms", "n_findings")}
    print(json.dumps({"attempts": len(attempts), **counts, "crashes": looks.crashes}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
