"""
Restoring an object that is there: strictly, and in place where that is possible.

Names, shapes and types are compared before anything is read. What is read goes right into the
parameters of a model, and into state of an optimizer that lies as its parameters do: of what is
distributed over ranks each reads its own part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch.nn import Module
from torch.optim import Optimizer

from footplate.checkpoints.restore import CheckpointReader, TensorKind
from footplate.errors import CheckpointError

__all__ = ["Loadable", "restore_into"]

_NAMED = 10
_HINT = "The code or its parameters changed since. Start over with --fresh."
_OF_PARAMETER = re.compile(r"state\.(\d+)\.(.+)")


class Loadable(Protocol):
    """What takes over a state."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Take over what ``state_dict`` gave."""


def restore_into(reader: CheckpointReader, name: str, tracked: Loadable) -> None:
    """
    Let an object go on from a checkpoint.

    Args:
        name: Of its state there.
        tracked: A model as it is without DDP around it, an optimizer, or anything else.

    Raises:
        CheckpointDamagedError: If the state is not what was written.
        CheckpointGoneError: If a file is missing.
        CheckpointError: If the state is not that of such an object, saying in what they differ.
        StoreError: If the store fails.
    """
    if isinstance(tracked, Module) and _has_own_state(tracked):
        _restore_module(reader, name, tracked)
    elif isinstance(tracked, Optimizer):
        _restore_optimizer(reader, name, tracked)
    else:
        _take_over(reader, name, tracked, reader.load(name))


def _has_own_state(module: Module) -> bool:
    """Whether the state of a model is what PyTorch makes of its parameters and buffers."""
    kind = type(module)
    return kind.state_dict is Module.state_dict and kind.load_state_dict is Module.load_state_dict


def _restore_module(reader: CheckpointReader, name: str, module: Module) -> None:
    state = module.state_dict()
    tensors = {path: value for path, value in state.items() if isinstance(value, torch.Tensor)}
    here = {path: TensorKind(value.dtype, value.shape) for path, value in tensors.items()}
    _compare(reader, name, here)
    loaded = reader.load(name, tensors)
    if loaded.keys() != state.keys() or not _is_filled(module, state):
        _take_over(reader, name, module, loaded)


def _is_filled(module: Module, state: Mapping[str, Any]) -> bool:
    """Whether a model needs no more than the tensors of its state filled in place."""
    own = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    held = module.state_dict(keep_vars=True)
    if held.keys() != state.keys() or not all(id(value) in own for value in held.values()):
        return False
    return not any(_takes_part(part) for part in module.modules())


def _takes_part(part: Module) -> bool:
    """Whether a part of a model does something of its own when state is loaded."""
    own_way = not type(part)._load_from_state_dict.__module__.startswith("torch.nn.modules.")
    hooks = (part._load_state_dict_pre_hooks, part._load_state_dict_post_hooks)
    return own_way or any(hooks)


def _restore_optimizer(reader: CheckpointReader, name: str, optimizer: Optimizer) -> None:
    parameters = [each for group in optimizer.param_groups for each in group["params"]]

    def like_parameter(path: str, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor | None:
        match = _OF_PARAMETER.fullmatch(path)
        # The number of steps stays on the CPU, wherever the parameter is.
        if match is None or match[2] == "step" or int(match[1]) >= len(parameters):
            return None
        parameter = parameters[int(match[1])]
        if parameter.shape != shape or parameter.is_meta:
            return None
        held = optimizer.state.get(parameter, {}).get(match[2])
        if isinstance(held, torch.Tensor) and _lies_as(held, parameter, dtype):
            return held
        return torch.empty_like(parameter, dtype=dtype, requires_grad=False)

    _take_over(reader, name, optimizer, reader.load(name, like_parameter))


def _lies_as(held: torch.Tensor, parameter: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether state that an optimizer has can be overwritten, so that it is not there twice."""
    one, other = (
        (type(each), each.shape, each.stride(), each.device) for each in (held, parameter.data)
    )
    return held.dtype is dtype and one == other


def _take_over(reader: CheckpointReader, name: str, tracked: Loadable, state: Any) -> None:
    try:
        tracked.load_state_dict(state)
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise _misfit(reader, name, str(error)) from error


def _compare(reader: CheckpointReader, name: str, here: Mapping[str, TensorKind]) -> None:
    there = reader.shapes(name)
    lines = [
        *_listed("only the code has", [path for path in here if path not in there]),
        *_listed("only the checkpoint has", [path for path in there if path not in here]),
        *_listed(
            "different are",
            [
                f"{path} ({_shown(there[path])} there, {_shown(kind)} in the code)"
                for path, kind in here.items()
                if path in there and there[path] != kind
            ],
        ),
    ]
    if lines:
        raise _misfit(reader, name, "\n".join(("", *lines)))


def _listed(what: str, items: list[str]) -> list[str]:
    if not items:
        return []
    more = f", and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return [f"  {what}: {', '.join(items[:_NAMED])}{more}"]


def _shown(kind: TensorKind) -> str:
    return f"{str(kind.dtype).removeprefix('torch.')} {list(kind.shape)}"


def _misfit(reader: CheckpointReader, name: str, why: str) -> CheckpointError:
    separator = "" if why.startswith("\n") else " "
    return CheckpointError(
        f"checkpoint {reader.manifest.name} does not fit {name}:{separator}{why}", _HINT
    )
