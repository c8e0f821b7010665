"""State as a tree and tensors and back, and trees that someone else made."""

from __future__ import annotations

import collections
import enum
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from footplate.checkpoints.index import parse_shared
from footplate.checkpoints.snapshot import Snapshotter
from footplate.checkpoints.tree import PACKED, join, split
from footplate.errors import CheckpointError, UserCodeError

_DTYPES = sorted(
    {value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str
)
_QUANTIZED = {torch.qint8, torch.qint32, torch.quint8, torch.quint4x2, torch.quint2x4}


_SNAPSHOTTER = Snapshotter(lambda value: [value], rank=0, world_size=1, device=torch.device("cpu"))


def _again(state: Any) -> Any:
    """The state out of the bytes and the JSON that would be written."""
    snapshot = _SNAPSHOTTER.take({"thing": state}, None)
    data = b"".join(snapshot.segments)
    tensors = {}
    for piece in snapshot.pieces:
        assert piece.sizes == piece.shape  # none of them is large enough to be cut
        raw = torch.tensor(list(data[piece.start : piece.start + piece.bytes]), dtype=torch.uint8)
        tensors[piece.tensor] = raw.view(getattr(torch, piece.dtype)).reshape(piece.shape)
    assert snapshot.shared is not None
    return join(parse_shared(snapshot.shared)["thing"], tensors)


def _bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()


def _same(one: Any, other: Any) -> bool:
    """Equal to the bit and of the same types."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return bool(alike and _bytes(one) == _bytes(other))
    if isinstance(one, (np.ndarray, np.generic)):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return bool(alike and one.tobytes() == other.tobytes())
    if isinstance(one, float):
        return bool(one.hex() == other.hex())
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=True)
        return len(one) == len(other) and all(_same(a, b) for a, b in pairs)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


_TENSORS = st.builds(
    lambda raw, dtype: torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(dtype),
    st.integers(1, 4).flatmap(lambda n: st.binary(min_size=8 * n, max_size=8 * n)),
    st.sampled_from(
        [torch.uint8, torch.bfloat16, torch.float16, torch.float32, torch.int64, torch.complex64]
    ),
)
_ARRAYS = hnp.arrays(
    hnp.scalar_dtypes() | hnp.unicode_string_dtypes(), hnp.array_shapes(min_dims=0, min_side=0)
)
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**100), 10**100)
    | st.floats()
    | st.text(st.characters(codec=None))
    | st.text(["\ud800", "\x00", "$"])
    | _TENSORS
    | _ARRAYS
)
_KEYS = st.text() | st.integers() | st.booleans() | st.none() | st.tuples(st.integers(), st.text())
_STATES: st.SearchStrategy[Any] = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(_KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(state=_STATES)
def test_a_state_round_trips_to_the_bit(state: Any) -> None:
    """Every number, key and type comes back, whatever the tree."""
    assert _same(_again(state), state)


@pytest.mark.parametrize("dtype", _DTYPES, ids=str)
def test_a_tensor_of_every_type_round_trips(dtype: torch.dtype) -> None:
    """What is stored can be loaded, also where safetensors has no name for the type."""
    if dtype in _QUANTIZED:
        return  # these hold more than their bytes; refused below
    with warnings.catch_warnings(action="ignore"):  # some are experimental
        raw = torch.arange(64, dtype=torch.uint8)
        tensor = raw % 2 == 1 if dtype == torch.bool else raw.view(dtype)
        back = _again({"x": [tensor]})["x"][0]
        empty = _again(tensor[:0])
    assert back.dtype == dtype
    assert back.shape == tensor.shape
    assert _bytes(back) == _bytes(tensor)
    assert empty.dtype == dtype
    assert empty.shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128], ids=str)
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[0, 0],
        lambda x: x[:0],
        lambda x: x.t(),
        lambda x: x[::2, 1:],
        lambda x: x[:1].expand(5, 6),
        lambda x: x.reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        lambda x: x.conj(),
        lambda x: x.requires_grad_() * 2,
        lambda x: torch.nn.Parameter(x),
    ],
    ids=[
        *("scalar", "empty", "transposed", "strided", "expanded"),
        *("channels_last", "conj", "grad", "parameter"),
    ],
)
def test_a_tensor_round_trips_however_it_lies_in_memory(dtype: torch.dtype, view: Any) -> None:
    """Shape and values are what counts, not strides, views or gradients."""
    tensor = view(torch.arange(24, dtype=torch.float32).reshape(4, 6).to(dtype) * (1 - 0.5j).real)
    back = _again(tensor)
    assert type(back) is torch.Tensor
    assert torch.equal(back, tensor.detach())
    assert back.dtype == dtype
    assert back.shape == tensor.shape
    assert not back.requires_grad


def test_nan_and_the_sign_of_zero_keep_their_bits() -> None:
    """A payload of NaN, minus zero and subnormal numbers are state as any other."""
    bits = torch.tensor([0x7FC00001, -0x7FFFFF, -0x80000000, 1], dtype=torch.int32)
    assert _bytes(_again(bits.view(torch.float32))) == _bytes(bits)
    back = _again([-0.0, math.inf, -math.inf, math.nan, 5e-324, 10**400, True, None])
    assert str(back) == str([-0.0, math.inf, -math.inf, math.nan, 5e-324, 10**400, True, None])


def test_tensors_that_share_memory_are_stored_apart() -> None:
    """Each comes back whole, and changing one leaves the other alone."""
    base = torch.arange(10.0)
    back = _again({"part": base[2:5], "all": base, "same": base})
    assert back["part"].tolist() == [2.0, 3.0, 4.0]
    back["all"].zero_()
    assert back["same"].tolist() == base.tolist()


def test_what_is_decoded_can_be_changed_in_place() -> None:
    """As an optimizer does with its state."""
    tensor, wide, array = _again([torch.ones(2), torch.ones(2, dtype=torch.complex128), np.ones(2)])
    for item in (tensor, wide, array):
        item += 1
        assert (item == 2).all()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(10)[::3],
        np.array(7),
        np.zeros((0, 3)),
        np.array(["2026-01-01", "NaT"], dtype="M8[ns]"),
        np.array(["ab", "ü"]),
        np.array([b"a", b"bc"]),
        np.array([1 + 2j]),
        np.array([1, 2], dtype=np.longdouble),
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}",
)
def test_an_array_round_trips(array: Any) -> None:
    """Type, byte order, shape and values."""
    array.flags.writeable = False
    back = _again(array)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)


def test_numpy_scalars_stay_scalars() -> None:
    """They are used as numbers and as keys, which an array of no dimensions can't be."""
    scalars = [np.float32(0.1), np.int64(3), np.bool_(True), np.datetime64("2026-01-01")]
    assert [type(item) for item in _again(scalars)] == [type(item) for item in scalars]
    assert _again({np.int64(3): "x"}) == {3: "x"}
    assert _again(np.float64(0.1)) == 0.1


def test_containers_keep_their_kind_and_order() -> None:
    """What torch's optimizers and schedulers put into their state."""
    milestones = collections.Counter({30: 1, 10: 2})
    state = {"milestones": milestones, 0: {"betas": (0.9, 0.999)}, "$": "tensor", (1, 2): []}
    back = _again(state)
    assert type(back["milestones"]) is collections.Counter
    assert list(back["milestones"]) == [30, 10]
    assert list(back) == list(state)
    assert _same(back, state)
    ordered = collections.OrderedDict(b=1, a=2)
    assert list(_again(ordered).items()) == [("b", 1), ("a", 2)]


def test_names_of_tensors_tell_where_they_were() -> None:
    """Names of a model's state are those that the model gives, and no two tensors share one."""
    part = torch.zeros(1)
    state = {"layer.weight": part, "state": {0: {"exp_avg": part}}, "list": [part, (part,)]}
    assert list(split(state, "thing")[1]) == [
        *("thing/layer.weight", "thing/state.0.exp_avg", "thing/list[0]", "thing/list[1][0]")
    ]
    clash = {"a": {"b": part}, "a.b": part, 1: part, "1": part, np.int64(7): 1, np.int64(8): 2}
    tree, tensors = split(clash, "thing")
    assert len(tensors) == 6
    assert {"thing/a.b", "thing/a.b#2", "thing/1", "thing/1#2"} < set(tensors)
    assert _same(join(tree, tensors), clash)
    assert list(split(part, "thing")[1]) == ["thing/"]


def test_real_optimizer_and_scheduler_state_is_taken_back() -> None:
    """Adam's and a scheduler's state load into new ones and are the same there."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, amsgrad=True)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 2, 2])
    for _ in range(3):
        model(torch.randn(8, 3)).sum().backward()
        optimizer.step()
        scheduler.step()
    for item in (model, optimizer, scheduler):
        before = item.state_dict()
        item.load_state_dict(_again(before))
        assert repr(item.state_dict()) == repr(before)


class _Colour(enum.Enum):
    RED = 1


_CYCLE: list[Any] = []
_CYCLE.append(_CYCLE)
_DEEP: list[Any] = []
for _ in range(5000):
    _DEEP = [_DEEP]


def _quantized() -> torch.Tensor:
    with warnings.catch_warnings(action="ignore"):  # deprecated, and still in use
        return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)


@pytest.mark.parametrize(
    ("state", "where"),
    [
        (object(), "^thing is a object"),
        ({"model": {"layers": [1, {"x": object()}]}}, r"^thing\.model\.layers\[1\]\.x is a object"),
        ({"a": (1, b"x")}, r"a\[1\] is a bytes"),
        ({"a": {1, 2}}, r"a is a set"),
        ({"a": lambda: 1}, r"a is a function"),
        ({"a": _Colour.RED}, r"a is a _Colour"),
        ({_Colour.RED: 1}, r"\[key\] is a _Colour"),
        ({"a": 1j}, r"a is a complex"),
        ({"a": torch.eye(2).to_sparse()}, r"a is a .*sparse_coo"),
        ({"a": torch.empty(2, device="meta")}, r"a is a meta tensor"),
        ({"a": _quantized()}, r"a is a .*quint8"),
        ({"a": np.array([object()])}, r"a is a ndarray of object"),
        ({"a": np.zeros(1, dtype=[("x", "f4")])}, r"a is a ndarray of \[\('x'"),
        ({"a": np.ma.masked_array([1], [True])}, r"a is a MaskedArray"),
        ({"a": np.zeros(1, dtype="V0")}, r"a is a ndarray"),
        (_CYCLE, "thing is nested too deeply, or holds itself"),
        (_DEEP, "thing is nested too deeply, or holds itself"),
        ({"a": 10**5000}, r"a is a number of too many digits"),
        (
            {"a": torch.zeros(8, dtype=torch.uint8).view(max(PACKED, key=str))[::2]},
            "a is a cpu tensor of",
        ),
    ],
)
def test_what_can_not_be_stored_is_refused_when_saving(state: Any, where: str) -> None:
    """Not when it is needed, and saying where it is."""
    with pytest.raises(UserCodeError, match=where):
        split(state, "thing")


class _Trap:
    def __init__(self, sprung: Path) -> None:
        self._sprung = sprung

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self._sprung,))


def test_a_pickle_is_refused_and_never_loaded(tmp_path: Path) -> None:
    """A tree that takes poisoned bytes for an array of objects executes nothing."""
    sprung = tmp_path / "sprung"
    pickled = pickle.dumps(_Trap(sprung))
    tensors = {"x": torch.tensor(list(pickled), dtype=torch.uint8)}
    for dtype in ("O", "|O8", "V8"):
        node = {"$": "array", "at": "x", "dtype": dtype, "shape": [1]}
        with pytest.raises(CheckpointError):
            join(node, tensors)
    assert not sprung.exists()
    pickle.loads(pickled)  # noqa: S301  # our own
    assert sprung.exists()  # it would have


def _array(dtype: Any, shape: Any) -> dict[str, Any]:
    return {"$": "array", "at": "x", "dtype": dtype, "shape": shape}


@pytest.mark.parametrize(
    "tree",
    [
        {"$": "exec", "code": "import os"},
        {"$": ["tensor"]},
        {"no": "kind"},
        {"$": "tensor"},
        {"$": "tensor", "at": "7"},
        {"$": "tensor", "at": ["7"]},
        {"$": "tuple", "items": 3},
        {"$": "dict", "items": [[1]]},
        {"$": "dict", "items": [[[], 1]]},
        {"$": "counter"},
        _array("O", [1]),
        _array("(2,", [1]),
        _array("nonsense", [1]),
        _array(7, [1]),
        _array("<f8", [2]),
        _array("<f8", [2**70]),
        _array("<f16", [1]),
        _array("<f8", "x"),
        _DEEP,
    ],
    ids=lambda tree: repr(tree)[:60] if isinstance(tree, dict) else "deep",
)
def test_a_malformed_tree_is_a_checkpoint_error(tree: Any) -> None:
    """Whatever is wrong with it; no other error, no huge allocation."""
    with pytest.raises(CheckpointError):
        join(tree, {"x": torch.zeros(8, dtype=torch.uint8)})


_TREES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries(
            {"$": st.sampled_from(["tensor", "array", "scalar", "tuple", "dict", "counter", "?"])},
            optional={
                "at": st.just("0") | inner,
                "items": inner,
                "shape": st.just([]) | inner,
                "dtype": st.sampled_from(["<f8", "float64", "O", "V8", "i4,i4", ""]) | inner,
            },
        )
    ),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(tree=_TREES)
def test_a_tree_of_anything_raises_nothing_else(tree: Any) -> None:
    """What someone else wrote gives a state or a checkpoint error."""
    try:
        with warnings.catch_warnings(action="ignore"):
            join(tree, {"0": torch.zeros(8, dtype=torch.uint8)})
    except CheckpointError:
        return
