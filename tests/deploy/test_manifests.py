"""What deploy/ says, against schemas and against the code: nothing here can run it, so what can be wrong is looked for.

Kubernetes' own JSON schemas and the Compose specification come with packages; beside them stand our own laws: names that
are referred to exist, variables are ones the code reads, every way of running starts the same programs.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import check_jsonschema
import jsonschema
import kubernetes_validate
import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands

from ingest.operations import PATHS
from ingest.process import process_name
from nccl_instrument.agent.options import parse_options
from tests.architecture.sources import ROOT, python_files

DEPLOY = ROOT / "deploy"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
VERSIONS = ("1.29", "1.33", kubernetes_validate.latest_version())
PROGRAMS = {
    "web": "uvicorn console.asgi:application",
    "ingest": "python -m ingest.serve",
    "looks": "celery -A console worker --hostname looks@%h --queues watch",
    "urgent": "celery -A console worker --hostname urgent@%h --queues urgent",
    "worker": "celery -A console worker --queues celery",
    "consume": "python manage.py consume",
    "beat": "celery -A console beat",
}
NOT_APPLIED = {"kustomization.yaml", "consume.yaml"}  # the second where there is Kafka
FIXED = {"DIOGENES_DATA", "DIOGENES_OPERATIONS"}
"""Settings that are a container's own: its volume, and the door that health checks knock at."""
OF_IMAGES = {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD"}


def known() -> set[str]:
    """Variables that docs/settings.md describes, which a test keeps equal to what the code reads."""
    return set(re.findall(r"^\| `(\w+)`", (ROOT / "docs/settings.md").read_text(), re.M))


def of_agents() -> set[str]:
    sources = [
        path.read_text() for path in python_files() if path.relative_to(ROOT).parts[:2] == ("nccl_instrument", "agent")
    ]
    return set(re.findall(r"\"(DIOGENES_[A-Z_]+)\"", "".join(sources)))


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in KUBERNETES:
        for number, one in enumerate(yaml.safe_load_all(path.read_text())):
            yield f"{path.name}#{number}", one


DOCUMENTS = {name: one for name, one in documents() if name != "kustomization.yaml#0"}
PODS = {name: one for name, one in DOCUMENTS.items() if one["kind"] in ("Deployment", "DaemonSet", "Job")}


def pod(one: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = one["spec"]["template"]["spec"]
    return found


def containers(one: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod(one).get("initContainers", ()), *pod(one)["containers"]]


# ---- Kubernetes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", list(DOCUMENTS))
def test_a_manifest_is_what_kubernetes_takes_and_has_no_field_it_does_not_know(name: str, version: str) -> None:
    kubernetes_validate.validate(DOCUMENTS[name], version, strict=True)


def test_a_wrong_manifest_is_noticed() -> None:
    wrong = json.loads(json.dumps(PODS["beat.yaml#0"]))
    wrong["spec"]["replicsa"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_all_of_them_are_applied() -> None:
    listed = yaml.safe_load((DEPLOY / "kubernetes/kustomization.yaml").read_text())
    assert {*listed["resources"], *NOT_APPLIED} == {path.name for path in KUBERNETES}
    assert "# - consume.yaml" in (DEPLOY / "kubernetes/kustomization.yaml").read_text()
    assert listed["namespace"] == DOCUMENTS["namespace.yaml#0"]["metadata"]["name"]


def test_what_manifests_refer_to_is_there() -> None:
    names: dict[str, set[str]] = {}
    for one in DOCUMENTS.values():
        names.setdefault(one["kind"], set()).add(one["metadata"]["name"])
    for one in PODS.values():
        volumes = {volume["name"]: volume for volume in pod(one)["volumes"]}
        for volume in volumes.values():
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            assert claim is None or claim in names["PersistentVolumeClaim"]
        for container in containers(one):
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
            for source in container.get("envFrom", ()):
                assert source.get("configMapRef", {}).get("name", "diogenes") in names["ConfigMap"]
    for path in DOCUMENTS["ingress.yaml#0"]["spec"]["rules"][0]["http"]["paths"]:
        assert path["backend"]["service"]["name"] in names["Service"]


@pytest.mark.parametrize("name", list(PODS))
def test_selectors_fit_and_pods_may_do_no_more_than_they_need(name: str) -> None:
    one = PODS[name]
    labels = one["spec"]["template"]["metadata"]["labels"]
    if one["kind"] != "Job":
        assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert pod(one)["automountServiceAccountToken"] is False
    for container in containers(one):
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"]
        assert rights["capabilities"]["drop"] == ["ALL"] and "privileged" not in rights
        assert {"cpu", "memory"} <= set(container["resources"]["limits"])
        assert container["image"].endswith(f":{settings.VERSION}")
    if one["kind"] != "DaemonSet":
        assert pod(one)["securityContext"]["runAsNonRoot"]


def test_services_and_probes_lead_to_ports_and_addresses_there_are() -> None:
    for one in DOCUMENTS.values():
        if one["kind"] == "Service":
            chosen = [pod(other) for other in PODS.values()
                      if one["spec"]["selector"].items() <= other["spec"]["template"]["metadata"]["labels"].items()]  # fmt: skip
            assert len(chosen) == 1
            ports = {port["name"] for port in chosen[0]["containers"][0]["ports"]}
            assert {port["targetPort"] for port in one["spec"]["ports"]} <= ports
    for name in PROGRAMS:
        (container,) = pod(PODS[f"{name}.yaml#0"])["containers"]
        ports = {port["name"] for port in container["ports"]}
        for probe in ("livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert asked["path"] in PATHS and asked["port"] in ports
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_there_is_exactly_one_beat() -> None:
    spec = PODS["beat.yaml#0"]["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")


def test_variables_are_ones_that_the_code_reads() -> None:
    assert set(DOCUMENTS["config.yaml#0"]["data"]) <= known()
    offered = set(re.findall(r"^  # (DIOGENES_\w+):", (DEPLOY / "kubernetes/config.yaml").read_text(), re.M))
    assert "DIOGENES_KAFKA_SERVERS" in offered <= known()
    (consume,) = pod(PODS["consume.yaml#0"])["containers"]
    assert "env" not in consume  # it would win over what the ConfigMap says
    (agent,) = pod(PODS["agent.yaml#0"])["containers"]
    names = {one["name"] for one in agent["env"]}
    assert names <= of_agents()
    given = {one["name"]: one.get("value", "node-1") for one in agent["env"]}
    options = parse_options([], given)
    assert (options.server, options.node) == ("https://diogenes.example.org", "node-1")
    mounted = {mount["mountPath"] for mount in agent["volumeMounts"]}
    assert {str(options.folders[0]), str(options.spool), str(options.token_file.parent)} <= mounted


# ---- Compose -------------------------------------------------------------------------------------------------------------


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def test_the_compose_file_is_what_the_specification_takes() -> None:
    (schema,) = Path(check_jsonschema.__file__).parent.rglob("compose-spec.json")
    jsonschema.validate(compose(), json.loads(schema.read_text()))


def test_compose_starts_the_same_processes_and_refers_to_what_there_is() -> None:
    services = compose()["services"]
    assert set(services) == {"database", "redis", "migrate", *PROGRAMS}
    for name, one in services.items():
        assert {volume.partition(":")[0] for volume in one.get("volumes", ())} <= {*compose()["volumes"], "./files"}
        assert set(one.get("depends_on", {})) <= set(services)
        assert "healthcheck" in one or name == "migrate"
        assert "latest" not in one["image"] and ":" in one["image"]
        if name in PROGRAMS:
            assert one["image"] == f"diogenes:{settings.VERSION}"
            assert set(one["environment"]) <= known()


def given(value: str, env: dict[str, str]) -> str:
    """What Compose makes of a value: `${NAME:-otherwise}` and `${NAME:?what it is}`, nested ones from within."""
    while found := re.search(r"\$\{(\w+)(?::([-?])([^${}]*))?\}", value):
        name, how, text = found.groups()
        assert how != "?" or env.get(name), f"{name}: {text}"
        value = value[: found.start()] + (env.get(name) or (text if how == "-" else "")) + value[found.end() :]
    return value


@pytest.mark.parametrize("service", ["migrate", *PROGRAMS])
def test_every_setting_that_is_written_into_the_env_file_reaches_every_process(service: str) -> None:
    """`environment` wins over `env_file`: what stands in both has to come from the same variable."""
    written = {name: f"value of {name}" for name in known()} | {"POSTGRES_PASSWORD": "secret"}
    one = compose()["services"][service]
    assert one["env_file"] == [
        {"path": ".env", "required": False}
    ]  # beside the file, where Compose looks for ${…}, too
    reaches = {**written, **{name: given(value, written) for name, value in one["environment"].items()}}
    assert {name for name in known() if reaches[name] != written[name]} == FIXED


def test_without_an_env_file_what_has_to_be_given_is_named_and_the_rest_has_its_default() -> None:
    settings_ = compose()["services"]["web"]["environment"]
    needed = {"POSTGRES_PASSWORD": "p", "DIOGENES_SECRET_KEY": "s", "DIOGENES_METRICS_TOKEN": "m"}
    told = {name: given(value, needed) for name, value in settings_.items()}
    assert told["DATABASE_URL"] == "postgresql://diogenes:p@database:5432/diogenes"
    assert (told["REDIS_URL"], told["DIOGENES_LOG"]) == ("redis://redis:6379/0", "json")
    with pytest.raises(AssertionError, match="a password for the database"):
        given(settings_["DATABASE_URL"], {})


def test_what_reads_from_kafka_starts_only_where_it_is_asked_for() -> None:
    profiles = {name: one.get("profiles", []) for name, one in compose()["services"].items()}
    assert {name: found for name, found in profiles.items() if found} == {"consume": ["kafka"]}


def test_secrets_of_compose_have_no_default() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    asked = set(re.findall(r"\$\{(\w+)[:}]", text))
    needed = set(re.findall(r"\$\{(\w+):\?", text))
    assert needed == {"POSTGRES_PASSWORD", "DIOGENES_SECRET_KEY", "DIOGENES_METRICS_TOKEN"}
    offered = set(re.findall(r"^(\w+)=", (DEPLOY / "compose.env").read_text(), re.M))
    assert needed <= offered <= known() | OF_IMAGES
    empty = set(re.findall(r"^(\w+)=$", (DEPLOY / "compose.env").read_text(), re.M))
    assert empty == needed, "an empty value counts as given"
    assert asked <= known() | OF_IMAGES


# ---- all ways of running -------------------------------------------------------------------------------------------------


def unit(name: str) -> ConfigParser:
    found = ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read(DEPLOY / name)
    return found


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_every_way_of_running_starts_the_same_program(name: str) -> None:
    file = "diogenes-ingest@.service" if name == "ingest" else f"diogenes-{name}.service"
    by_systemd = unit(file)["Service"]["ExecStart"].removeprefix("/opt/diogenes/.venv/bin/").replace("%%", "%")
    by_compose = shlex.join(compose()["services"][name]["command"])
    by_kubernetes = shlex.join(pod(PODS[f"{name}.yaml#0"])["containers"][0]["args"])
    for said in (by_systemd, by_compose, by_kubernetes):
        assert said.startswith(PROGRAMS[name])
        assert not said.startswith("celery") or process_name(said.split()) == name
    for flag in ("--http", "--ws-max-size", "--concurrency"):
        assert len({flag in said for said in (by_systemd, by_compose, by_kubernetes)}) == 1


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("*.service")), ids=lambda path: path.name)
def test_a_unit_starts_something_that_is_there(path: Path) -> None:
    service = unit(path.name)["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[0].startswith("/opt/diogenes/.venv/bin/")
    if "manage.py" in words:
        assert words[words.index("manage.py") + 1] in get_commands()
    if "-m" in words:
        module = ROOT / words[words.index("-m") + 1].replace(".", "/")
        assert module.with_suffix(".py").exists() or (module / "__main__.py").exists()
    assert service["Restart"] == "always" and unit(path.name)["Install"]["WantedBy"] == "multi-user.target"


@pytest.mark.parametrize("name", ["web", "looks", "worker"])
def test_who_writes_bundles_and_evidence_may_write_to_the_data_folder(name: str) -> None:
    """Everything else is read-only for the units; web and workers share one folder."""
    text = (DEPLOY / f"diogenes-{name}.service").read_text()
    data = re.search(r"^Environment=DIOGENES_DATA=(\S+)$", text, re.M)
    service = unit(f"diogenes-{name}.service")["Service"]
    assert data is not None and data[1] == f"/var/lib/{service['StateDirectory']}"
    assert compose()["services"][name]["environment"]["DIOGENES_DATA"] == data[1]
    mounts = pod(PODS[f"{name}.yaml#0"])["containers"][0]["volumeMounts"]
    assert data[1] in [one["mountPath"] for one in mounts]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    for path in DEPLOY.glob("*.service"):
        text = re.sub(r"/opt/diogenes/\.venv/bin/\w+", "/bin/true", path.read_text())  # not installed here
        (tmp_path / path.name.replace("@", "@1")).write_text(text)
    units = [str(path) for path in sorted(tmp_path.iterdir())]
    said = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=60, check=False
    )
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_finds_what_is_wrong_with_a_unit(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.service"
    wrong.write_text("[Service]\nExecStart=/bin/true\nMemoryMax=plenty\nNoSuchSetting=1\n")
    said = subprocess.run(
        ["systemd-analyze", "verify", str(wrong)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "NoSuchSetting" in said.stderr and "plenty" in said.stderr


def test_images_are_built_from_what_is_there_and_do_not_run_as_root() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    stages = {line.split()[-1] for line in lines if line.startswith("FROM ")}
    for line in lines:
        if line.startswith("FROM "):
            base = line.split()[1]
            assert base in stages or (":" in base and "latest" not in base)
        if line.startswith("COPY ") and "--from" not in line:
            assert [name for name in line.split()[1:-1] if not (ROOT / name).exists()] == []
    server = "\n".join(lines).partition("AS server")[2].partition("FROM ")[0]
    assert re.search(r"^USER 10001$", server, re.M)
    assert {"server", "agent"} <= stages
    pinned = next(
        line
        for line in (ROOT / "requirements/dev.lock").read_text().splitlines()
        if line.startswith("confluent-kafka==")
    )
    assert pinned.split()[0] in server
