"""A plain file of a checkpoint's tensors, for whoever knows nothing of Footplate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch
from torch import nn

from checkpoint_files import halves, make_checkpoint
from footplate.checkpoints.export import export_safetensors
from footplate.checkpoints.index import data_file
from footplate.checkpoints.restore import CheckpointReader
from footplate.errors import CheckpointDamagedError, CheckpointError
from footplate.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(str(tmp_path / "store"))


def _reader(store: Store, state: Any) -> CheckpointReader:
    manifest = make_checkpoint(store, "c", {"model": state}, [{}, {}], cut=halves)
    return CheckpointReader(store, "c", manifest)


def test_the_file_is_the_state_of_the_model(store: Store, tmp_path: Path) -> None:
    """To the bit, loaded by the library of that format, into the model."""
    model = nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(5), nn.Linear(5, 3).bfloat16())
    out, told = tmp_path / "model.safetensors", list[tuple[int, int]]()
    reader = _reader(store, model.state_dict())
    export_safetensors(reader, "model", out, progress=lambda *far: told.append(far))
    loaded = safetensors.torch.load_file(out)
    assert loaded.keys() == model.state_dict().keys()
    torch.testing.assert_close(loaded, dict(model.state_dict()), rtol=0, atol=0)
    with safetensors.safe_open(out, "pt") as opened:
        assert opened.metadata()["checkpoint"] == reader.location
    size = sum(t.numel() * t.itemsize for t in loaded.values())
    assert max(told) == (size, size)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [out.name]


def test_every_type_and_shape_of_the_format_is_written(store: Store, tmp_path: Path) -> None:
    """Without gaps, which the format does not allow; what is no tensor is left out."""
    state: dict[str, Any] = {
        "flags": torch.tensor([True, False, True]),
        "bytes": torch.arange(5, dtype=torch.uint8),
        "wide": torch.arange(3, dtype=torch.float64),
        "small": torch.ones(3).to(torch.float8_e4m3fn),
        "pairs": torch.ones(3, dtype=torch.complex64),
        "none": torch.zeros(0, 3),
        "one": torch.tensor(7),
        "version": 3,
    }
    out = tmp_path / "x.safetensors"
    export_safetensors(_reader(store, state), "model", out)
    loaded = safetensors.torch.load_file(out)
    assert loaded.keys() == state.keys() - {"version"}
    for path, tensor in loaded.items():
        assert tensor.dtype == state[path].dtype
        assert tensor.shape == state[path].shape
        assert tensor.reshape(-1).view(torch.uint8).equal(state[path].reshape(-1).view(torch.uint8))


def test_what_the_format_lacks_is_refused(store: Store, tmp_path: Path) -> None:
    """By its name, before a file is made."""
    reader = _reader(store, {"x": torch.ones(2, dtype=torch.complex128)})
    with pytest.raises(CheckpointError, match=r"no tensors of torch\.complex128"):
        export_safetensors(reader, "model", tmp_path / "x.safetensors")
    assert not list(tmp_path.glob("x*"))


def test_a_damaged_checkpoint_leaves_no_file(store: Store, tmp_path: Path) -> None:
    """Nor does a place that can't be written."""
    reader = _reader(store, {"x": torch.ones(100)})
    with pytest.raises(CheckpointError, match=r"cannot write .*: No such file or directory"):
        export_safetensors(reader, "model", tmp_path / "absent" / "x.safetensors")
    assert store.folder is not None
    file = store.folder / "c" / data_file(0)
    file.write_bytes(b"y" * file.stat().st_size)
    with pytest.raises(CheckpointDamagedError):
        export_safetensors(reader, "model", tmp_path / "x.safetensors")
    assert not list(tmp_path.glob("x*"))
