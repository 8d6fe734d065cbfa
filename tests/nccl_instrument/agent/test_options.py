"""The command line and the environment of the agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_instrument.agent.nics import Nic
from nccl_instrument.agent.options import parse_options

NEEDED = {"DIOGENES_SERVER": "http://server", "DIOGENES_TOKEN_FILE": "/token"}


def test_the_environment_is_enough() -> None:
    environment = NEEDED | {
        "DIOGENES_NODE": "n1", "DIOGENES_SEGMENT_DIR": "/a:/b", "DIOGENES_NICS": "x=/sys/x,y=/sys/y",
        "DIOGENES_SPOOL": "/spool", "DIOGENES_SPOOL_BYTES_MAX": "1000", "DIOGENES_CA": "/ca.pem",
    }  # fmt: skip
    options = parse_options([], environment)
    assert (options.server, options.token_file, options.node) == ("http://server", Path("/token"), "n1")
    assert options.folders == (Path("/a"), Path("/b"))
    assert options.nics == (Nic("x", Path("/sys/x")), Nic("y", Path("/sys/y")))
    assert (options.spool, options.spool_bytes_max, options.ca_file) == (Path("/spool"), 1000, Path("/ca.pem"))


def test_a_flag_wins_over_its_variable() -> None:
    options = parse_options(["--node", "flag", "--segments", "/c", "--server", "http://flag"], NEEDED)
    assert (options.node, options.folders, options.server) == ("flag", (Path("/c"),), "http://flag")


def test_without_anything_else_segments_are_sought_in_shared_memory() -> None:
    assert parse_options(["--node", "n"], NEEDED).folders == (Path("/dev/shm"),)


@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        ([], {}, "--server and --token-file are needed"),
        (["--node", "x" * 200], NEEDED, "node name of more than 128 bytes"),
        (["--nic", "eth0"], NEEDED, "not NAME=FOLDER"),
        (["--nic", "a-name-of-seventeen=/x"], NEEDED, "not NAME=FOLDER"),
        (["--cluster", "ü" * 17], NEEDED, "--cluster is at most 32 printable bytes"),
        (["--rack", "a\nb"], NEEDED, "--rack is at most 32 printable bytes"),
        (["--spool-bytes-max", "-1"], NEEDED, "must not be negative"),
    ],
)
def test_what_is_missing_or_wrong_is_said_in_one_sentence(
    arguments: list[str], environment: dict[str, str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        parse_options(arguments, environment)
    assert refused.value.code == 2
    assert sentence in capsys.readouterr().err
