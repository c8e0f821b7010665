"""What a training function tracks: its state, and taking up a saved one."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import torch
from torch.nn import Module
from torch.optim import Optimizer

from footplate.checkpoints.templates import restore_into
from footplate.checkpoints.tree import split
from footplate.errors import CheckpointError, FootplateError, UserCodeError
from footplate.train import randomness
from footplate.train.parallel import averaging, unwrapped
from footplate.train.start import Start

__all__ = ["Stateful", "Tracked"]


@runtime_checkable
class Stateful(Protocol):
    """What can be tracked: a model, an optimizer, a scheduler, anything with these two."""

    def state_dict(self) -> Any:
        """Everything needed to go on, of types that can be stored without pickle."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Take over what ``state_dict`` gave."""


class Tracked:
    """
    The state of one rank's training, by name.

    Args:
        start: What is restored, or None.
    """

    def __init__(self, rank: int, start: Start | None) -> None:
        self._rank = rank
        self._start = start
        self._objects: dict[str, Any] = {}
        self._generators: dict[str, torch.Generator] = {}
        self._replicated: Replicated | None = None
        self._made_of: tuple[object, ...] = ()
        # A rank that the writing run did not have finds nothing of its own.
        self._own = start.reader.own(rank) if start and start.everything else None

    def add(self, name: str, item: Any) -> None:
        """
        Save this object with every checkpoint; restore it now if there is one.

        Raises:
            UserCodeError: If it can't be tracked.
            CheckpointError: If the checkpoint does not fit it.
        """
        if isinstance(item, type) or not isinstance(item, (Stateful, torch.Generator)):
            raise UserCodeError(
                f"{name} is a {type(item).__name__}, without state_dict and load_state_dict",
                "Track models, optimizers, schedulers, torch generators, or objects with both.",
            )
        if name in self._objects or name in self._generators:
            raise UserCodeError(f"{name} is tracked already", "Give each object its own name.")
        if isinstance(item, torch.Generator):
            self._generators[name] = item
            if self._own is not None:
                self._check_saved(name, self._own["generators"])
                item.set_state(self._own["generators"][name])
            return
        self._objects[name] = item
        if self._start is not None and (self._start.everything or isinstance(item, Module)):
            self._check_saved(name, self._start.reader.shared)
            inside: Any = unwrapped(item) if isinstance(item, Module) else item
            restore_into(self._start.reader, name, inside)

    @property
    def names(self) -> tuple[str, ...]:
        """What the shared state consists of."""
        return tuple(self._objects)

    @property
    def is_empty(self) -> bool:
        """Whether a checkpoint would hold nothing but random numbers."""
        return not self._objects and not self._generators

    @property
    def has_plain_model(self) -> bool:
        """Whether a model that is trained is tracked as it is, without anything around it."""
        models = [item for item in self._objects.values() if isinstance(item, Module)]
        trained = [m for m in models if any(p.requires_grad for p in m.parameters())]
        return any(averaging(model) is None for model in trained)

    def holds(self, model: Module) -> bool:
        """Whether a model is saved: by itself, in another one, or perhaps in an object unknown."""
        tracked = [unwrapped(item) for item in self._objects.values()]
        known = (Module, Optimizer, torch.optim.lr_scheduler.LRScheduler)
        if not all(isinstance(item, known) for item in tracked):
            return True
        parts = [part for item in tracked if isinstance(item, Module) for part in item.modules()]
        return any(unwrapped(model) is part for part in parts)

    def stray_optimizer(self, models: Iterable[Module]) -> str | None:
        """The name of an optimizer of parameters that none of these models has; None if none is."""
        known = {id(parameter) for model in models for parameter in model.parameters()}
        optimizers = ((n, i) for n, i in self._objects.items() if isinstance(i, Optimizer))
        return next((name for name, item in optimizers if not _is_of(item, known)), None)

    def _check_saved(self, name: str, saved: Any) -> None:
        assert self._start is not None
        if name not in saved:
            raise CheckpointError(
                f"checkpoint {self._start.manifest.name} holds {sorted(saved)}, not {name!r}",
                "The code tracks more than it did. Start over with --fresh, or track as before.",
            )

    def begin(self, seed: int) -> None:
        """
        Let this rank's random generators go on, or begin, each rank with its own numbers.

        Called when the loop begins, by when everything is tracked.

        Raises:
            CheckpointError: If the checkpoint holds what is not tracked.
        """
        self._check_all_taken()
        if self._own is not None:
            randomness.restore(self._own["random"])
        else:
            step = self._start.step if self._start else 0
            randomness.seed_everything(seed, self._rank + 1, step)

    def _check_all_taken(self) -> None:
        if self._start is None or not self._start.everything:
            return
        saved = {*self._start.reader.shared, *(self._own["generators"] if self._own else ())}
        if left := saved - self._objects.keys() - self._generators.keys():
            raise CheckpointError(
                f"{', '.join(sorted(left))} of the checkpoint is not tracked any more",
                "It would be lost with the next checkpoint. Track it, or start over with --fresh.",
            )

    def check_storable(self) -> None:
        """
        Make sure that all of it can be saved, long before it is; nothing is copied.

        Raises:
            UserCodeError: If not, naming what can't be stored.
        """
        for name, state in self.shared().items():
            split(state, name)

    def shared(self) -> dict[str, Any]:
        """
        The state that all ranks have together, not copied.

        Raises:
            UserCodeError: If an object does not give its state.
        """
        return {name: _state(name, item) for name, item in self._objects.items()}

    def own(self) -> dict[str, Any]:
        """The state that is this rank's alone."""
        generators = {name: item.get_state() for name, item in self._generators.items()}
        return {"random": randomness.capture(), "generators": generators}

    def replicated(self) -> Replicated:
        """Which tensors of the shared state are the same on all ranks, to the last bit."""
        made_of = (*self._objects, *(_size(item) for item in self._objects.values()))
        if self._replicated is None or self._made_of != made_of:
            self._replicated, self._made_of = Replicated(self._objects), made_of
        return self._replicated


class Replicated:
    """
    Tells of a tensor, by the name that it is stored under, whether all ranks have the same.

    That is so of parameters whose gradients are averaged, and of what an optimizer derives from
    those. It is not of buffers: statistics of batches differ until the next forward pass, in
    which all take over those of rank 0; and of what users track nothing is known.
    """

    def __init__(self, objects: dict[str, Any]) -> None:
        found = {name: averaging(item) for name, item in objects.items()}
        averaged = {
            f"{name}/{path}": id(parameter)
            for name, ddp in found.items()
            if ddp is not None
            for path, parameter in unwrapped(ddp).named_parameters(remove_duplicate=False)
            if path not in ddp.parameters_to_ignore
        }
        self._names = averaged.keys()
        self._whole = tuple(
            f"{name}/"
            for name, item in objects.items()
            if isinstance(item, Optimizer) and _is_of(item, {*averaged.values()})
        )

    def __call__(self, key: str) -> bool:
        return key in self._names or key.startswith(self._whole)


def _size(item: Any) -> int:
    """How many parameters an optimizer has: it may be given more."""
    if not isinstance(item, Optimizer):
        return 0
    return sum(len(group["params"]) for group in item.param_groups)


def _is_of(optimizer: Optimizer, parameters: set[int]) -> bool:
    """Whether an optimizer has no parameters but these."""
    return all(id(p) in parameters for group in optimizer.param_groups for p in group["params"])


def _state(name: str, tracked: Any) -> Any:
    try:
        return unwrapped(tracked).state_dict()
    except FootplateError:
        raise
    except Exception as error:  # the user's state_dict() may raise anything
        raise UserCodeError(
            f"state_dict() of {name} failed: {type(error).__name__}: {error}",
            trace="".join(traceback.format_exception(error)),
        ) from error
