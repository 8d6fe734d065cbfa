"""The agent's command line and its environment: every flag has a DIOGENES_ variable, the flag wins."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nccl_instrument.agent.nics import Nic
from nccl_instrument.agent.sending.batches import NOWHERE, Standpoint
from nccl_instrument.agent.sending.jobs import name_problem
from nccl_instrument.agent.sending.kafka import TOPIC
from nccl_instrument.agent.traffic.sampling import ROWS_PER_S
from nccl_instrument.measure.spreading import EPOCH_NS_LEAST, EPOCH_NS_MOST

SPOOL_BYTES_MAX: Final = 256 * 2**20
STANDPOINT_BYTES_MAX: Final = 32  # width of the columns they travel in
TRAFFIC_ROWS_MOST: Final = 20_000
UPLINKS: Final = ("http", "kafka")


@dataclass(frozen=True, slots=True)
class Kafka:
    """Where batches go with UPLINK=kafka; dumps still go to the server. config: a file of librdkafka's properties."""

    servers: str
    topic: str
    config: Path | None


@dataclass(frozen=True, slots=True)
class Options:
    """A complete, checked configuration."""

    server: str
    token_file: Path
    ca_file: Path | None
    node: str
    folders: tuple[Path, ...]
    nics: tuple[Nic, ...]
    spool: Path
    spool_bytes_max: int
    epoch_us: int
    traffic_rows_max: int
    kafka: Kafka | None = None
    standpoint: Standpoint = NOWHERE


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Exits with one sentence on stderr when something needed is missing or wrong."""
    parser = _parser(environment)
    given = parser.parse_args(arguments)
    if not given.server or not given.token_file:
        parser.error("--server and --token-file are needed (or DIOGENES_SERVER and DIOGENES_TOKEN_FILE)")
    if problem := name_problem(given.node, "node"):
        parser.error(f"{problem}: give one with --node")
    if given.spool_bytes_max < 0:
        parser.error("--spool-bytes-max must not be negative")
    if not EPOCH_NS_LEAST <= given.epoch_us * 1000 <= EPOCH_NS_MOST:
        parser.error("--epoch-us must be 8 to 1000")
    if not 0 <= given.traffic_rows_max <= TRAFFIC_ROWS_MOST:
        parser.error(f"--traffic-rows-max must be 0 to {TRAFFIC_ROWS_MOST}")
    folders = given.segments or _paths(environment.get("DIOGENES_SEGMENT_DIR", "/dev/shm"))
    nics = given.nic or [_nic(text) for text in environment.get("DIOGENES_NICS", "").split(",") if text]
    spool = given.spool or _default_spool(environment, given.node)
    return Options(
        given.server, given.token_file, given.ca, given.node, tuple(dict.fromkeys(folders)), tuple(nics), spool,
        given.spool_bytes_max, given.epoch_us, given.traffic_rows_max, _kafka(parser, given),
        _standpoint(parser, given),
    )  # fmt: skip


def _kafka(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Kafka | None:
    if given.uplink not in UPLINKS:
        parser.error(f"--uplink is one of {', '.join(UPLINKS)}, not {given.uplink!r}")
    if given.uplink == "http":
        return None
    if not given.kafka_servers:
        parser.error("--uplink kafka needs --kafka-servers (or DIOGENES_KAFKA_SERVERS)")
    return Kafka(given.kafka_servers, given.kafka_topic, given.kafka_config)


def _standpoint(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Standpoint:
    for what, name in (("cluster", given.cluster), ("rack", given.rack)):
        if len(name.encode()) > STANDPOINT_BYTES_MAX or not name.isprintable():
            parser.error(f"--{what} is at most {STANDPOINT_BYTES_MAX} printable bytes")
    return Standpoint(given.cluster, given.rack)


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    def path(name: str) -> Path | None:
        return Path(environment[name]) if environment.get(name) else None

    parser = argparse.ArgumentParser(
        prog="python -m nccl_instrument.agent", description="Sends what the NCCL profiler plugin sees on this node."
    )
    add = parser.add_argument
    add("--server", default=environment.get("DIOGENES_SERVER"), help="address of the console, http:// or https://")
    add("--token-file", type=Path, default=path("DIOGENES_TOKEN_FILE"), help="file that holds the agent token")
    add("--ca", type=Path, default=path("DIOGENES_CA"), help="certificates to trust instead of the system's")
    add("--node", default=environment.get("DIOGENES_NODE") or socket.gethostname(), help="this node's name")
    add("--cluster", default=environment.get("DIOGENES_CLUSTER", ""), help="the cluster this node is in")
    add("--rack", default=environment.get("DIOGENES_RACK", ""), help="the rack this node is in")
    add("--segments", type=Path, action="append", help="folder of segments, may be repeated (default /dev/shm)")
    add("--nic", type=_nic, action="append", metavar="NAME=FOLDER", help="a NIC and its sysfs folder, may be repeated")
    add("--spool", type=Path, default=path("DIOGENES_SPOOL"), help="folder for batches that cannot be sent yet")
    spool_bytes = environment.get("DIOGENES_SPOOL_BYTES_MAX", str(SPOOL_BYTES_MAX))
    add("--spool-bytes-max", type=int, default=spool_bytes, help=f"its size (default {SPOOL_BYTES_MAX})")
    epoch_us, rows = (
        environment.get("DIOGENES_EPOCH_US", "32"),
        environment.get("DIOGENES_TRAFFIC_ROWS_MAX", str(ROWS_PER_S)),
    )
    add(
        "--epoch-us",
        type=int,
        default=epoch_us,
        help="length of the epochs in which traffic is measured, 8 to 1000 (default 32)",
    )
    add("--traffic-rows-max", type=int, default=rows, help=f"rows of traffic a second, 0 none (default {ROWS_PER_S})")
    uplink = environment.get("DIOGENES_UPLINK") or environment.get("UPLINK") or "http"
    add("--uplink", default=uplink, help="the road batches take: http (default) or kafka")
    add("--kafka-servers", default=environment.get("DIOGENES_KAFKA_SERVERS"), help="HOST:PORT, separated by commas")
    add("--kafka-topic", default=environment.get("DIOGENES_KAFKA_TOPIC") or TOPIC, help=f"default {TOPIC}")
    add("--kafka-config", type=Path, default=path("DIOGENES_KAFKA_CONFIG"), help="file of librdkafka's properties")
    return parser


def _paths(text: str) -> list[Path]:
    return [Path(part) for part in text.split(os.pathsep) if part]


def _nic(text: str) -> Nic:
    name, separator, folder = text.partition("=")
    if not separator or not folder or not 0 < len(name.encode()) <= 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FOLDER with a name of at most 16 bytes")
    return Nic(name, Path(folder))


def _default_spool(environment: Mapping[str, str], node: str) -> Path:
    state = environment.get("STATE_DIRECTORY") or environment.get("XDG_STATE_HOME")  # systemd sets the former
    folder = Path(state) if state else Path(f"/var/tmp/diogenes.{os.geteuid()}")
    return folder / f"spool.{node.replace('/', '_')}"
