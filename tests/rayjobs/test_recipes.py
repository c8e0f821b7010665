"""The recipes: what their specs name is there, and what their models do is what they say."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from footplate.data import read_manifest, verify_files
from footplate.spec import load

_FOLDER = Path(__file__).parents[2] / "rayjobs"
_RECIPES = sorted(path.stem for path in _FOLDER.glob("*.toml"))


def _recipe(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", _FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def textlm() -> ModuleType:
    """The language model's recipe, with the random numbers of a fixed seed."""
    torch.manual_seed(0)
    return _recipe("textlm")


@pytest.fixture
def own_trainer() -> ModuleType:
    """The recipe with its own trainer, with the random numbers of a fixed seed."""
    torch.manual_seed(0)
    return _recipe("own_trainer")


@pytest.fixture
def digits() -> ModuleType:
    """The digits' recipe, with the random numbers of a fixed seed."""
    torch.manual_seed(0)
    return _recipe("digits")


def test_there_are_recipes() -> None:
    """The tests below look at something."""
    assert _RECIPES == ["digits", "own_trainer", "textlm"]


@pytest.mark.parametrize("name", _RECIPES)
def test_spec_names_what_is_there(name: str) -> None:
    """The spec is valid, and what it runs, its manifests and prepare functions are there."""
    job = load(_FOLDER / f"{name}.toml")

    assert job.name.replace("-", "_") == name
    if job.entrypoint is not None:
        module, _, function = job.entrypoint.partition(":")
        assert module == name
        assert callable(getattr(_recipe(module), function))
    else:
        assert job.command is not None
        assert (_FOLDER / job.command[-1]).is_file()
    for dataset in job.data.values():
        if dataset.manifest:
            verify_files(*read_manifest(job.path(dataset.manifest)))
        else:
            assert dataset.prepare is not None
            file, _, prepare = dataset.prepare.partition(":")
            assert f"def {prepare}(" in Path(job.path(file)).read_text(encoding="utf-8")


def test_digits_spec_is_short() -> None:
    """The spec that people read first has under 20 lines."""
    assert len((_FOLDER / "digits.toml").read_text(encoding="utf-8").splitlines()) < 20


def test_digit_network_reads_images(digits: ModuleType) -> None:
    """Images of whole numbers from 0 to 16 become ten logits each."""
    network = digits.DigitNet(width=4, dropout=0.0)
    images = torch.randint(0, 17, (5, 8, 8), dtype=torch.uint8)

    assert network(images).shape == (5, 10)
    torch.testing.assert_close(network(images), network(images.float()))


def test_distortion_is_as_the_keys_say(digits: ModuleType) -> None:
    """Every image changes in its own way, which is the same whenever it is asked for."""
    images = np.random.default_rng(0).integers(0, 17, (6, 8, 8), dtype=np.uint8)
    keys = np.arange(6, dtype=np.uint64)
    columns = {"image": images, "label": np.arange(6)}

    once = digits.distorted(columns, keys)
    part = digits.distorted({"image": images[2:4], "label": np.arange(2)}, keys[2:4])

    assert once["label"] is columns["label"]
    assert (abs(once["image"] - images).max(axis=(1, 2)) > 0.1).all()
    np.testing.assert_array_equal(part["image"], once["image"][2:4])


def test_interpolation_is_torchs(digits: ModuleType) -> None:
    """Places between pixels, and outside the image, are given what torch gives them."""
    random = np.random.default_rng(1)
    images = random.random((3, 8, 8), dtype=np.float32)
    rows, columns = random.uniform(-3, 10, (2, 3, 20))
    grid = torch.tensor((np.stack([columns, rows], axis=-1) + 0.5) / 8 * 2 - 1)
    expected = torch.nn.functional.grid_sample(
        torch.tensor(images)[:, None], grid[:, None].float(), align_corners=False
    )

    found = digits.interpolated(images, rows, columns)

    np.testing.assert_allclose(found, expected[:, 0, 0], atol=1e-5)


def test_spirals_are_repeatable_and_even(own_trainer: ModuleType) -> None:
    """All ranks and attempts have the same points, half of them on each arm."""
    place, arm = own_trainer.spirals(64)

    assert (place.shape, arm.float().mean().item()) == ((64, 2), 0.5)
    torch.testing.assert_close(place, own_trainer.spirals(64)[0])
    assert not place.equal(own_trainer.spirals(64, seed=1)[0])


def test_own_trainer_learns(own_trainer: ModuleType) -> None:
    """Some steps on all points are enough to tell the arms apart."""
    model = own_trainer.network(32)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    batch = own_trainer.spirals(256)
    losses = [own_trainer.step(model, optimizer, *batch) for _ in range(200)]

    assert losses[-1] < 0.1 < losses[0]


def _tiny(textlm: ModuleType, dropout: float = 0.0) -> torch.nn.Module:
    model: torch.nn.Module = textlm.ByteTransformer(layers=2, width=16, heads=2, dropout=dropout)
    return model


def _some_text(samples: int, length: int) -> Tensor:
    return torch.randint(0, 256, (samples, length), dtype=torch.uint8)


def test_first_loss_is_that_of_a_guess(textlm: ModuleType) -> None:
    """Before training every byte is about as likely as any other."""
    loss = textlm.loss_of(_tiny(textlm), {"text": _some_text(8, 65)})

    assert loss.item() == pytest.approx(math.log(256), abs=0.1)


def test_model_does_not_see_the_future(textlm: ModuleType) -> None:
    """A byte changes what is predicted after it, and nothing before."""
    model = _tiny(textlm)
    text = _some_text(1, 32)
    changed = text.clone()
    changed[0, 20] += 1

    difference = (model(text) - model(changed)).abs().amax(dim=-1)[0]

    assert (difference[:20] < 1e-6).all()
    assert (difference[20:] > 1e-6).all()


def test_model_sees_the_order(textlm: ModuleType) -> None:
    """Positions count: the same bytes in another order predict something else."""
    model = _tiny(textlm)
    text = _some_text(1, 32)
    swapped = text.clone()
    swapped[0, :2] = text[0, [1, 0]]

    assert (model(text)[0, -1] - model(swapped)[0, -1]).abs().amax() > 1e-7


def test_model_learns(textlm: ModuleType) -> None:
    """A few steps of the recipe's optimizer and schedule are enough to learn one text by heart."""
    model = _tiny(textlm)
    optimizer = textlm.optimizer_for(model, lr=3e-2, weight_decay=0.1)
    scheduler = textlm.schedule_for(optimizer, warmup_steps=5, total_steps=60)
    batch = {"text": _some_text(1, 33)}
    for _ in range(60):
        loss = textlm.loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()

    assert textlm.loss_of(model, batch).item() < 0.5


def test_dropout_is_of_training_alone(textlm: ModuleType) -> None:
    """Two passes differ in training, which makes random state matter, and agree in evaluation."""
    model = _tiny(textlm, dropout=0.5)
    text = _some_text(1, 32)

    assert not model(text).equal(model(text))
    model.eval()
    assert model(text).equal(model(text))


def test_only_matrices_decay(textlm: ModuleType) -> None:
    """Every parameter is in one group; biases and norms are not pulled towards zero."""
    model = _tiny(textlm)
    decayed, kept = textlm.optimizer_for(model, lr=1e-3, weight_decay=0.1).param_groups

    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
    assert {weight.dim() for weight in decayed["params"]} == {2}
    assert {weight.dim() for weight in kept["params"]} == {1}
    assert len(decayed["params"]) + len(kept["params"]) == len(list(model.parameters()))


def test_schedule_rises_and_falls(textlm: ModuleType) -> None:
    """The learning rate rises evenly to its full value and ends at a tenth of it."""
    optimizer = textlm.optimizer_for(_tiny(textlm), lr=1.0, weight_decay=0.0)
    scheduler = textlm.schedule_for(optimizer, warmup_steps=4, total_steps=20)
    rates = []
    for _ in range(20):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()

    assert rates[:5] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert scheduler.get_last_lr()[0] == pytest.approx(0.1)


def test_uneven_heads_are_refused(textlm: ModuleType) -> None:
    """A width that heads and rotary pairs cannot share says so, not a shape error later."""
    with pytest.raises(ValueError, match="width 20 is no multiple of twice the heads, 16"):
        textlm.ByteTransformer(layers=1, width=20, heads=8, dropout=0.0)
