"""docs/operations.md and the alert rules name what there is: metrics, log fields and checks, no more and no less."""

from __future__ import annotations

import re

import yaml
from prometheus_client.metrics import MetricWrapperBase

from console.operations import metrics as of_the_console
from console.operations.checks import TITLES
from console.operations.logs import FIELDS
from console.operations.stack import MEANING
from ingest.door import metrics as of_ingest
from nccl_instrument.tables import DATA_LOSSES
from tests.architecture.sources import ROOT

PAGE = (ROOT / "docs/operations.md").read_text()
ALERTS = ROOT / "deploy/alerts.yml"


def metrics() -> dict[str, tuple[str, str, str]]:
    """Name → type, labels, meaning, as the code has them."""
    found = {name: ("gauge", "", meaning) for name, meaning in MEANING.items()}
    for module in (of_ingest, of_the_console):
        for metric in vars(module).values():
            if isinstance(metric, MetricWrapperBase):
                name = metric._name + ("_total" if metric._type == "counter" else "")
                found[name] = (metric._type, ", ".join(metric._labelnames), metric._documentation)
    return found


def rows(pattern: str) -> list[list[str]]:
    lines = [line for line in PAGE.splitlines() if re.match(pattern, line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_lists_every_metric_with_its_type_and_meaning() -> None:
    told = {name.strip("`"): (kind, labels, meaning) for name, kind, labels, meaning in rows(r"\| `diogenes_")}
    assert told == metrics()


def test_the_page_lists_every_check() -> None:
    assert {number.strip("`"): when for number, when in rows(r"\| `diogenes\.")} == TITLES


def test_the_page_lists_every_log_field() -> None:
    told = {name for cells in rows(r"\| `(at|\w+)`[,|` a-z]* \| ") for name in re.findall(r"`(\w+)`", cells[0])}
    assert set(FIELDS) <= told


def test_alerts_can_be_read_and_ask_for_metrics_there_are() -> None:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    assert 5 <= len(group["rules"]) <= 8
    known = set(metrics()) | {f"{name}_bucket" for name, (kind, *_) in metrics().items() if kind == "histogram"}
    for rule in group["rules"]:
        assert set(re.findall(r"diogenes_\w+", rule["expr"])) <= known
        assert rule["annotations"]["summary"]


def test_the_alert_on_losses_names_every_kind_that_leaves_holes() -> None:
    (kinds,) = re.findall(r'losses_total\{kind=~"([\w|]+)"', ALERTS.read_text())
    assert set(kinds.split("|")) == set(DATA_LOSSES)


def test_no_label_grows_with_the_cluster() -> None:
    labels = {label for _, given, _ in metrics().values() for label in given.split(", ") if label}
    assert labels == {"status", "kind", "method", "page", "type", "task", "outcome", "saw", "symptom", "reason"}
