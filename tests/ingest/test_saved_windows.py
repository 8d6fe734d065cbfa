"""A saved window comes back as it was; a file that is something else is refused in a sentence, unread and unpickled."""

from __future__ import annotations

import io
import json
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingest.window import FORMAT, BadWindow, Window, load_window, save_window
from tests.windows import make_window


class Boom:
    """What a pickle may do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was loaded",))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_window(tmp_path / "w.npz", make_window(nic_down=3))
    return tmp_path / "w.npz"


def rewritten(path: Path, **members: bytes | None) -> Path:
    """The archive with members (without .npy) replaced, added, or left out (None)."""
    with zipfile.ZipFile(path) as old:
        kept = {info.filename.removesuffix(".npy"): old.read(info) for info in old.infolist()}
    found = path.with_name("other.npz")
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in {**kept, **members}.items():
            if content is not None:
                new.writestr(f"{name}.npy", content)
    return found


def npy(array: Any, allow_pickle: bool = False) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), allow_pickle=allow_pickle)
    return stream.getvalue()


def head(**changes: Any) -> bytes:
    window = make_window(nic_down=3)
    said = {"format": FORMAT, "job": "job", "unreadable": {}}
    said |= {name: getattr(window, name) for name in ("attempt", "start_ns", "end_ns", "now_ns", "world_size")}
    return npy(np.array(json.dumps({**said, **changes})))


def refused(path: Path, **limits: int) -> str:
    with pytest.raises(BadWindow) as caught:
        load_window(path, **limits)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(str(path)) and line.endswith(".")
    return line


def equal(one: Window, other: Window) -> bool:
    same = all((getattr(one, name) == getattr(other, name)) for name in ("job", "attempt", "start_ns", "world_size"))
    return same and all((one.rows(name) == other.rows(name)).all() for name in one.tables)


def test_a_window_comes_back_as_it_was(saved: Path) -> None:
    assert equal(load_window(saved), make_window(nic_down=3))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_off(saved: Path, share: float) -> None:
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    assert "is not a saved window" in refused(saved)


def test_a_file_that_is_not_there_and_a_folder(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "nothing.npz")
    assert "directory" in refused(tmp_path)


def test_any_byte_may_be_wrong_and_nothing_but_a_refusal_or_a_window_comes(saved: Path) -> None:
    content, draw = saved.read_bytes(), random.Random(1)
    for _ in range(200):
        garbled = bytearray(content)
        for _ in range(draw.randint(1, 8)):
            garbled[draw.randrange(len(garbled))] = draw.randrange(256)
        saved.write_bytes(garbled)
        try:
            load_window(saved)
        except BadWindow as error:
            assert len(str(error).splitlines()) == 1


def test_python_objects_are_refused_and_no_pickle_is_loaded(saved: Path) -> None:
    objects = npy(np.array([Boom()], dtype=object), allow_pickle=True)
    for name in ("table_op", "nodes", "head", "extra"):
        assert "Python objects" in refused(rewritten(saved, **{name: objects}))
    plain = saved.with_name("plain.npz")
    plain.write_bytes(pickle.dumps(Boom()))
    assert "is not a saved window" in refused(plain)
    plain.write_bytes(objects)
    assert "is not a saved window" in refused(plain)


@pytest.mark.parametrize("version", [0, 2, "2", None, [1]])
def test_another_versions_window_says_which_versions(saved: Path, version: Any) -> None:
    assert f"this version reads {FORMAT}" in refused(rewritten(saved, head=head(format=version)))


@pytest.mark.parametrize(
    "changes",
    [{"job": 5}, {"end_ns": "x"}, {"attempt": True}, {"start_ns": 10**30}, {"unreadable": {"n": "x"}}, {"surprise": 1},
     {"world_size": None}],
)  # fmt: skip
def test_a_head_of_other_things(saved: Path, changes: dict[str, Any]) -> None:
    assert "does not say" in refused(rewritten(saved, head=head(**changes)))


def test_a_head_that_is_no_json(saved: Path) -> None:
    for text in ("", "nonsense", "[" * 100_000, "[]"):
        refused(rewritten(saved, head=npy(np.array(text))))
    refused(rewritten(saved, head=npy(np.arange(3))))
    assert "no head" in refused(rewritten(saved, head=None))


def test_columns_or_arrays_of_other_versions(saved: Path) -> None:
    op = make_window().rows("op").dtype
    few = [(name, op[name]) for name in ("comm_id", "comm_rank", "op", "rank")]
    for columns in (few, [*few, ("node", "<i8")], [*few, ("node", "<i4"), ("new", "<i4")]):
        assert "other columns" in refused(rewritten(saved, table_op=npy(np.zeros(3, columns))))
    assert "none of a window's" in refused(rewritten(saved, table_new=npy(np.zeros(3))))
    assert "lacks members" in refused(rewritten(saved, members=None))
    assert "speaks of a node" in refused(rewritten(saved, nodes=npy(make_window().nodes[:1])))


def test_an_array_that_claims_more_than_the_archive_holds_takes_no_memory(saved: Path) -> None:
    rows = make_window(nic_down=3).rows("op")
    claimed = npy(rows).replace(f"({len(rows)},)".encode(), b"(9999999999999,)", 1)
    assert "has other" in refused(rewritten(saved, table_op=claimed))


def test_a_bomb_is_refused_by_what_it_says_it_holds(saved: Path) -> None:
    bomb = npy(np.zeros(400_000, make_window().rows("op").dtype))
    path = rewritten(saved, table_op=bomb)
    assert path.stat().st_size < len(bomb) / 100
    assert "more than the" in refused(path, bytes_max=2**20)


def test_a_bomb_that_lies_about_what_it_holds_is_read_no_further(saved: Path) -> None:
    path = rewritten(saved, table_op=npy(np.zeros(400_000, make_window().rows("op").dtype)))
    content = path.read_bytes()
    size = len(npy(np.zeros(400_000, make_window().rows("op").dtype))).to_bytes(4, "little")
    assert size in content
    path.write_bytes(content.replace(size, (5000).to_bytes(4, "little")))
    refused(path)


def test_too_many_arrays_and_one_twice(saved: Path) -> None:
    assert "more than" in refused(rewritten(saved, **{f"a{i}": npy(np.zeros(1)) for i in range(100)}))
    with zipfile.ZipFile(saved, "a") as archive, pytest.warns(UserWarning):
        archive.writestr("head.npy", head())
    assert "twice" in refused(saved)


def test_an_older_window_of_fewer_columns_is_brought_to_todays(saved: Path) -> None:
    ranks = make_window(nic_down=3).ranks
    kept = [name for name in ranks.dtype.names or () if name != "counters_seen"]
    older = np.zeros(len(ranks), [(name, ranks.dtype[name]) for name in kept])
    for name in kept:
        older[name] = ranks[name]
    found = load_window(rewritten(saved, ranks=npy(older)))
    assert (found.ranks == ranks).all() and found.ranks.dtype == ranks.dtype


def test_a_counter_that_an_older_window_does_not_have_is_unknown_and_not_zero(saved: Path) -> None:
    nics = make_window(nic_down=3).rows("nic")
    kept = [name for name in nics.dtype.names or () if name != "xmit_wait"]
    older = np.zeros(len(nics), [(name, nics.dtype[name]) for name in kept])
    for name in kept:
        older[name] = nics[name]
    found = load_window(rewritten(saved, table_nic=npy(older))).rows("nic")
    assert len(found) and (found["xmit_wait"] == 2**64 - 1).all()
    assert all((found[name] == nics[name]).all() for name in kept)


def test_rows_that_grow_by_todays_columns_count_as_what_they_become(saved: Path) -> None:
    ops = make_window(nic_down=3).rows("op")
    few = np.zeros(100_000, [(name, ops.dtype[name]) for name in ("comm_id", "comm_rank", "op", "rank", "node")])
    path, as_rows = rewritten(saved, table_op=npy(few)), len(few) * (few.itemsize + ops.itemsize)
    assert few.nbytes < as_rows / 4
    assert "more than the" in refused(path, bytes_max=as_rows - 1)
    assert len(load_window(path, bytes_max=as_rows + 2**20).rows("op")) == len(few)
