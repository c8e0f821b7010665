"""State comes back from pieces, however they were cut; and nothing else comes from anywhere."""

from __future__ import annotations

import itertools
import math
import os
import pickle
import resource
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_files import Cut, dealt, halves, make_checkpoint, make_files, put_checkpoint, whole
from footplate.checkpoints.index import (
    STATE_FILE,
    Piece,
    RankIndex,
    data_file,
    index_file,
    parse_index,
    shared_json,
)
from footplate.checkpoints.integrity import verify_folder
from footplate.checkpoints.restore import CheckpointReader
from footplate.errors import CheckpointDamagedError, CheckpointError, StoreError
from footplate.store import Store

_DTYPES = sorted(
    {value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str
)
_CUTS: dict[str, Cut] = {
    "whole": whole,
    "rows of two": dealt(2),
    "rows of three": dealt(3),
    "columns": dealt(2, dimension=1),
    "both": halves,
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(str(tmp_path / "store"))


def _state() -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "table": torch.randn(37, 11),
        "vector": torch.arange(1001, dtype=torch.float64),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "half": torch.randn(5, 2, 7).bfloat16(),
        "flags": torch.randn(9) > 0,
        "numbers": [1, 2.5, None, (True, "text")],
        "array": np.arange(12, dtype=">i4").reshape(3, 4),
        "large": torch.randn(600, 700),
    }


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and bool((one == other).all())
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and bool((one == other).all())
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)


@pytest.mark.parametrize("cut", _CUTS.values(), ids=_CUTS)
def test_state_comes_back_however_it_was_cut(store: Store, cut: Cut) -> None:
    """To the bit, into new tensors, with what is no tensor beside them."""
    state = _state()
    manifest = make_checkpoint(store, "c", {"model": state}, [{}, {}, {}], cut=cut)
    reader = CheckpointReader(store, "c", manifest)
    assert reader.shared == ("model",)
    assert _same(reader.load("model"), state)
    assert verify_folder(store, "c") == []


@pytest.mark.parametrize("cut", _CUTS.values(), ids=_CUTS)
@pytest.mark.parametrize(
    "lies",
    [
        lambda tensor: torch.empty_like(tensor),
        lambda tensor: torch.empty_like(tensor.mT).mT if tensor.dim() > 1 else tensor.clone(),
        lambda tensor: torch.empty((*tensor.shape, 2), dtype=tensor.dtype)[..., 0],
        lambda tensor: torch.nn.Parameter(torch.empty_like(tensor), requires_grad=False),
    ],
    ids=["alike", "transposed", "with gaps", "parameter"],
)
def test_tensors_are_filled_in_place(store: Store, cut: Cut, lies: Any) -> None:
    """However they lie in memory; what is not named is new."""
    state = _state()
    manifest = make_checkpoint(store, "c", {"model": state}, [{}, {}, {}], cut=cut)
    into = {
        path: lies(value)
        for path, value in state.items()
        if isinstance(value, torch.Tensor) and path != "vector"
    }
    loaded = CheckpointReader(store, "c", manifest).load("model", into)
    assert _same(loaded, state)
    for path, tensor in into.items():
        assert torch.equal(tensor, state[path])
        assert loaded[path].data_ptr() == tensor.data_ptr()


@pytest.mark.parametrize("dtype", _DTYPES, ids=str)
@pytest.mark.parametrize("cut", [whole, halves], ids=["whole", "halves"])
def test_every_type_of_numbers_comes_back(store: Store, dtype: torch.dtype, cut: Cut) -> None:
    """Also those that PyTorch can store but not copy, and in tensors with gaps."""
    if str(dtype).startswith("torch.q"):
        return  # these hold more than their bytes; never saved
    with warnings.catch_warnings(action="ignore"):  # some are experimental
        raw = torch.arange(256, dtype=torch.uint8).reshape(4, 64)
        tensor = raw % 2 == 1 if dtype == torch.bool else raw.view(dtype)
        manifest = make_checkpoint(store, "c", {"x": {"t": tensor}}, [{}, {}], cut=cut)
        gapped = torch.empty((*tensor.shape, 2), dtype=dtype)[..., 0]
        reader = CheckpointReader(store, "c", manifest)
        new = reader.load("x")["t"]
        reader.load("x", {"t": gapped})
        integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        items = gapped.view(integers.get(dtype.itemsize, dtype)).contiguous()
        for back in (new, items.view(dtype)):
            assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
            assert torch.equal(back.view(torch.uint8), tensor.view(torch.uint8))


def test_what_a_rank_has_of_its_own_is_its_own(store: Store) -> None:
    """A rank that the writing run did not have finds nothing."""
    own = [{"random": torch.tensor([rank, 7]), "n": rank} for rank in range(3)]
    manifest = make_checkpoint(store, "c", {"model": {}}, own)
    reader = CheckpointReader(store, "c", manifest)
    for rank in range(3):
        assert _same(reader.own(rank), own[rank])
    assert reader.own(3) is None


def test_shapes_are_told_without_reading(store: Store) -> None:
    """Of tensors alone, by their paths."""
    manifest = make_checkpoint(store, "c", {"model": _state()}, [{}, {}], cut=dealt(2))
    store.delete(f"c/{data_file(0)}")
    shapes = CheckpointReader(store, "c", manifest).shapes("model")
    assert shapes["table"] == (torch.float32, (37, 11))
    assert "array" not in shapes
    assert "numbers" not in shapes


def test_a_damaged_piece_is_named(store: Store) -> None:
    """The file, the place and the tensor; whatever it is read into, and among many others."""
    state = {f"t{number:02}": torch.randn(300) for number in range(50)}
    manifest = make_checkpoint(store, "c", {"model": state})
    assert store.folder is not None
    file = store.folder / "c" / data_file(0)
    content = bytearray(file.read_bytes())
    piece = parse_index(store.get(f"c/{index_file(0)}")).pieces[17]
    content[piece.start + 5] ^= 1
    file.write_bytes(content)
    for into in (None, {path: torch.empty_like(value) for path, value in state.items()}):
        with pytest.raises(CheckpointDamagedError) as caught:
            CheckpointReader(store, "c", manifest).load("model", into)
        assert f"bytes {piece.start} to {piece.start + 1200}, of model/t17," in str(caught.value)


def test_a_tensor_of_another_kind_is_not_read_into(store: Store) -> None:
    """Nor one without memory."""
    manifest = make_checkpoint(store, "c", {"model": {"w": torch.zeros(2, 3)}})
    reader = CheckpointReader(store, "c", manifest)
    for wrong in (torch.zeros(3, 2), torch.zeros(2, 3).double(), torch.zeros(2, 3, device="meta")):
        with pytest.raises(CheckpointError, match="can't be read into"):
            reader.load("model", {"w": wrong})


def test_an_object_that_is_not_there_is_named(store: Store) -> None:
    """With those that are."""
    manifest = make_checkpoint(store, "c", {"model": {}})
    with pytest.raises(CheckpointError, match=r"holds \['model'\], not 'net'"):
        CheckpointReader(store, "c", manifest).load("net")


def test_a_failing_disk_is_an_error_of_the_store(store: Store) -> None:
    """Not of the checkpoint, and not the end of the process."""
    manifest = make_checkpoint(store, "c", {"model": {"w": torch.zeros(100)}})
    assert store.folder is not None
    file = store.folder / "c" / data_file(0)
    file.unlink()
    file.symlink_to(file)
    with pytest.raises(StoreError, match=r"cannot read .*rank-00000\.bin"):
        CheckpointReader(store, "c", manifest).load("model")


def test_progress_adds_up(store: Store) -> None:
    """To all bytes that are read."""
    manifest = make_checkpoint(store, "c", {"model": _state()}, [{}, {}], cut=halves)
    told: list[int] = []
    CheckpointReader(store, "c", manifest).load("model", progress=told.append)
    tensors = [value for value in _state().values() if isinstance(value, torch.Tensor)]
    assert sum(told) == sum(t.numel() * t.itemsize for t in tensors) + 48


# What someone else may have made.


def _poisoned(
    store: Store, change: Any, *, state: Any = None, cut: Cut = whole, ranks: int = 1
) -> CheckpointReader:
    """A reader of a checkpoint whose index 0, as JSON, was changed, with digests that agree."""
    import json

    shared = {"model": state or {"w": torch.arange(64.0), "v": torch.arange(64.0)}}
    files = make_files(shared, [{}] * ranks, cut=cut)
    index = json.loads(files[index_file(0)])
    changed = change(index)
    content = json.dumps(index if changed is None else changed)
    files[index_file(0)] = content.encode()
    return CheckpointReader(store, "c", put_checkpoint(store, "c", files, world_size=ranks))


def _set(number: int, **values: Any) -> Any:
    def change(index: Any) -> None:
        index["pieces"][number] |= values

    return change


_LIES: dict[str, Any] = {
    "no object": lambda _: [],
    "another rank": lambda index: index | {"rank": 1},
    "rank of text": lambda index: index | {"rank": "first"},
    "a larger file": lambda index: index | {"size": 10**15},
    "no pieces": lambda index: index | {"pieces": None},
    "pieces of text": lambda index: index | {"pieces": "text"},
    "a piece of nothing": lambda index: index | {"pieces": [{}]},
    "absurd shape": _set(0, shape=[10**12], sizes=[10**12]),
    "absurd shape, absurd bytes": _set(0, shape=[10**12], sizes=[10**12], bytes=4 * 10**12),
    "a shape beyond all numbers": _set(0, shape=[10**30], sizes=[10**30]),
    "shape of nothing, too large": _set(0, shape=[0, 10**30], sizes=[0, 10**30], bytes=0),
    "a shape larger than its pieces": _set(0, shape=[10**12]),
    "dimensions": _set(0, shape=[64, 1], sizes=[64]),
    "too many dimensions": _set(0, shape=[1] * 100, sizes=[1] * 100, offsets=[0] * 100, bytes=4),
    "negative": _set(0, offsets=[-1]),
    "outside": _set(0, offsets=[1]),
    "fractions": _set(0, sizes=[64.0]),
    "truth": _set(0, offsets=[False]),
    "text": _set(0, sizes=["64"]),
    "behind the end": _set(1, start=10**9),
    "before the beginning": _set(0, start=-64),
    "not aligned": _set(1, start=257),
    "one over the other": _set(1, start=0),
    "too few bytes": _set(0, bytes=4),
    "bytes of no type": _set(0, bytes=64 * 3),
    "another type": _set(0, dtype="float64"),
    "a type that is none": _set(0, dtype="load"),
    "a quantized type": _set(0, dtype="quint8", shape=[256], sizes=[256]),
    "a type of text": _set(0, dtype=["float32"]),
    "a name that is none": _set(0, tensor=7),
    "a name of a path": _set(0, tensor="../../etc/passwd"),
    "the tensor of a rank": _set(0, tensor="rank-00000/w"),
    "nobody's digest": _set(0, xxh3=None),
    "the same twice": lambda index: index | {"pieces": [index["pieces"][0]] * 2},
    "two as one": _set(1, tensor="model/w"),
    "two of different shapes": _set(1, tensor="model/w", shape=[128]),
    "a tree of a rank": lambda index: index | {"own": {"$": "tensor", "at": "model/w"}},
    "deep": lambda index: index | {"own": _deep(200)},
}


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"$": "tuple", "items": [value]}
    return value


@pytest.mark.parametrize("lie", _LIES.values(), ids=_LIES)
def test_lies_are_a_checkpoint_error(store: Store, lie: Any) -> None:
    """Whatever is said of pieces: no other error, and nothing allocated for it."""
    with warnings.catch_warnings(action="ignore"), _little_memory(), pytest.raises(CheckpointError):
        _read_all(store, lie)


def _read_all(store: Store, lie: Any) -> None:
    reader = _poisoned(store, lie)
    reader.load("model")
    if reader.own(0) != {}:
        raise CheckpointError("read, and of no use")


class _little_memory:  # noqa: N801 - reads as a statement
    """A limit of memory that absurd sizes would break."""

    def __enter__(self) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), self._before[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_AS, self._before)


def test_pieces_that_leave_gaps_or_overlap_are_refused(store: Store) -> None:
    """Also where their volumes add up to the whole."""

    def shift(index: Any) -> None:
        for piece in index["pieces"]:
            if piece["offsets"] == [8, 0]:
                piece["offsets"] = [4, 0]

    state = {"w": torch.randn(16, 4)}
    with pytest.raises(CheckpointError, match="not the whole of it"):
        _poisoned(
            store, shift, state=state, cut=lambda _, __: [(0, (8 * i, 0), (8, 4)) for i in range(2)]
        ).load("model")


def test_pieces_of_other_items_are_refused(store: Store) -> None:
    """Also where their bytes add up to the right number."""

    def two_to_one(_: str, __: torch.Tensor) -> list[Any]:
        return [(0, (8, 0), (4, 4)), (0, (0, 0), (8, 4))]

    state = {"w": torch.zeros(12, 4), "v": torch.zeros(12, 4)}

    def halve_and_double(index: Any) -> None:
        small, large = index["pieces"][:2]
        small["bytes"], large["bytes"] = 2 * small["bytes"], large["bytes"] // 2
        large["start"], small["start"] = small["start"], small["start"] + 64
        index["pieces"][:2] = [large, small]

    with pytest.raises(CheckpointError, match="not those of its type"):
        _poisoned(store, halve_and_double, state=state, cut=two_to_one).load("model")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"format":2,"shared":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
        b'{"format":2,"shared":' + b"1" * 5000 + b"}",
        b'{"format":2,"shared":[[1]]}',
        b'{"format":3,"shared":{}}',
        b'{"format":[],"shared":{}}',
        shared_json({"model": {"$": "tensor", "at": "model/absent"}}),
        shared_json({"model": {"$": "tensor", "at": 7}}),
        shared_json({"model": {"$": "tensor"}}),
        shared_json({"model": {"$": "tensor", "at": "rank-00000/x"}}),
        shared_json({"model": {"$": "exec", "code": "import os"}}),
        shared_json({"model": {"$": "array", "at": "model/w", "dtype": "O", "shape": [32]}}),
        shared_json({"model": {"$": "array", "at": "model/w", "dtype": "<f8", "shape": [10**12]}}),
        shared_json({"model": {"$": "dict", "items": [[[], 1]]}}),
    ],
    ids=lambda content: repr(content[:50]),
)
def test_a_malformed_state_is_a_checkpoint_error(store: Store, content: bytes) -> None:
    """However it is malformed."""
    files = make_files({"model": {"w": torch.arange(64.0)}})
    files[STATE_FILE] = content
    manifest = put_checkpoint(store, "c", files)
    with pytest.raises(CheckpointError):
        CheckpointReader(store, "c", manifest).load("model")


@pytest.mark.parametrize(
    ("names", "world_size"),
    [
        ([], 1),
        ([STATE_FILE], 1),
        ([STATE_FILE, index_file(0)], 10**12),
        ([STATE_FILE, index_file(0)], 0),
        ([STATE_FILE, index_file(0)], -1),
        ([STATE_FILE, index_file(0), index_file(0)], 1),
        ([STATE_FILE, index_file(0), "../../other/run.json"], 1),
        ([STATE_FILE, index_file(0), "/etc/passwd"], 1),
        ([STATE_FILE, index_file(0), data_file(1)], 1),
        ([STATE_FILE, index_file(0), "extra.bin"], 1),
    ],
)
def test_a_manifest_of_other_files_is_refused(
    store: Store, names: list[str], world_size: int
) -> None:
    """A checkpoint has its own files and no others, least of all those of other places."""
    files = make_files({"model": {}})
    manifest = put_checkpoint(store, "c", files, world_size=world_size, names=names)
    with pytest.raises(CheckpointError):
        CheckpointReader(store, "c", manifest)
    with pytest.raises(CheckpointError):
        verify_folder(store, "c")


class _Trap:
    def __init__(self, sprung: Path) -> None:
        self._sprung = sprung

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self._sprung,))


def test_pickles_are_bytes_as_any(store: Store, tmp_path: Path) -> None:
    """Wherever someone puts them: nothing that is loaded is executed."""
    sprung = tmp_path / "sprung"
    poison = pickle.dumps(_Trap(sprung))
    raw = torch.frombuffer(bytearray(poison), dtype=torch.uint8)
    for number, tree in enumerate(
        [
            {"$": "tensor", "at": "model/x"},
            {"$": "array", "at": "model/x", "dtype": "O", "shape": [len(poison)]},
            {"$": "array", "at": "model/x", "dtype": f"V{len(poison)}", "shape": [1]},
        ]
    ):
        files = make_files({"model": {"x": raw}}) | {STATE_FILE: shared_json({"model": tree})}
        reader = CheckpointReader(store, f"{number}", put_checkpoint(store, f"{number}", files))
        with warnings.catch_warnings(action="ignore"):
            try:
                reader.load("model")
            except CheckpointError:
                continue
    for name in (STATE_FILE, index_file(0)):
        files = make_files({"model": {"x": raw}}) | {name: poison}
        with pytest.raises(CheckpointError):
            CheckpointReader(store, "p", put_checkpoint(store, "p", files))
    assert not sprung.exists()
    pickle.loads(poison)  # noqa: S301 - our own
    assert sprung.exists()  # it would have


def test_a_pipe_in_place_of_a_file_is_no_file(store: Store) -> None:
    """Opening it would wait for ever."""
    manifest = make_checkpoint(store, "c", {"model": {"w": torch.zeros(100)}})
    assert store.folder is not None
    file = store.folder / "c" / data_file(0)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(CheckpointError, match="is no file"):
        CheckpointReader(store, "c", manifest).load("model")


_VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 300)
    | st.sampled_from([2**31, 2**63 - 1, 2**63, 10**30])
    | st.floats(allow_nan=True)
    | st.text(max_size=3)
    | st.lists(st.integers(-1, 70), max_size=3)
    | st.sampled_from(["float32", "float64", "int8", "model/w", "model/v", "rank-00000/w"])
)
_FIELDS = ["tensor", "dtype", "shape", "offsets", "sizes", "start", "bytes", "xxh3"]


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(_FIELDS), _VALUES), min_size=1, max_size=4
    )
)
def test_an_index_of_anything_raises_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, str, Any]]
) -> None:
    """It gives the state that was written, or a checkpoint error."""
    store = Store(str(tmp_path_factory.mktemp("store")))
    state = {"w": torch.arange(64.0).reshape(8, 8), "v": torch.arange(64.0).reshape(8, 8)}

    def change(index: Any) -> None:
        for number, field, value in changes:
            index["pieces"][number][field] = value

    with warnings.catch_warnings(action="ignore"):
        try:
            reader = _poisoned(store, change, state=state, ranks=2, cut=_in_two)
            loaded = reader.load("model")
        except CheckpointError:
            return
    assert all(tensor.numel() == 64 or tensor.numel() < 256 for tensor in loaded.values())


def _in_two(_: str, tensor: torch.Tensor) -> list[Any]:
    return [(0, (4 * part, 0), (4, 8)) for part in range(2)]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_boxes_make_the_same_tensor(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Cut at any places along every dimension, dealt to ranks in any way."""
    store = Store(str(tmp_path_factory.mktemp("store")))
    shape = data.draw(st.lists(st.integers(1, 9), max_size=3))
    tensor = torch.arange(int(np.prod(shape, dtype=int)), dtype=torch.int32).reshape(shape)
    edges = [
        sorted({0, size, *data.draw(st.lists(st.integers(0, size), max_size=3))}) for size in shape
    ]
    spans = [list(itertools.pairwise(each)) for each in edges]
    boxes = [
        (
            data.draw(st.integers(0, 2)),
            tuple(begin for begin, _ in box),
            tuple(end - begin for begin, end in box),
        )
        for box in itertools.product(*spans)
    ]
    boxes = data.draw(st.permutations(boxes))
    manifest = make_checkpoint(store, "c", {"x": [tensor]}, [{}] * 3, cut=lambda *_: boxes)
    back = CheckpointReader(store, "c", manifest).load("x")[0]
    assert torch.equal(back, tensor)


def test_an_index_is_read_as_it_was_written() -> None:
    """What not every reader of JSON takes too: infinity, half a surrogate pair, big numbers."""
    own = {"infinite": math.inf, "half": "\ud800", "long": 2**200, "odd": 1 / 3}
    pieces = tuple(
        Piece(f"model/w{number}", "float32", (8, 2), (0, number), (8, 1), 64 * number, 32, "f" * 16)
        for number in range(2)
    )
    index = RankIndex(rank=3, size=96, own=own, pieces=pieces)
    assert parse_index(index.to_json()) == index
    plain = replace(index, own={"odd": 1 / 3})
    assert parse_index(plain.to_json()) == plain
