"""
State as JSON and tensors: no pickle, so that loading can't execute anything.

A state (what ``state_dict()`` returns) is a tree of plain Python values with tensors and arrays
in it. :func:`split` takes the tensors out, under names that tell where they were; what is left is
JSON, with those names in their places. :func:`join` puts them back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor

from footplate.errors import CheckpointError, UserCodeError

__all__ = ["PACKED", "join", "split"]

# Types smaller than a byte: torch copies nothing but the bytes of such tensors.
PACKED = frozenset(
    getattr(torch, f"{kind}{bits}") for kind in ("int", "uint") for bits in range(1, 8)
)

_KIND = "$"
_PLAIN = frozenset({type(None), bool, float, str})
_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
# What is nested deeper than Python's JSON can follow could be written and never read.
_MAX_DEPTH = 100
_MAX_INTEGER_BITS = 14_000  # Python reads no longer ones from text
_MALFORMED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,  # from torch; from Python if nested too deeply
    SyntaxError,  # from numpy, of the name of a type
    TypeError,
    ValueError,
)


def split(state: Any, prefix: str) -> tuple[Any, dict[str, torch.Tensor]]:
    """
    Take the tensors out of a state.

    Args:
        prefix: What the names of the tensors begin with.

    Returns:
        What is left, as JSON; and the tensors by name, which are not copied: in the order of the
        state, on the device where they are, sharded ones as they are.

    Raises:
        UserCodeError: If something in it is of a type that can't be stored, naming where.
    """
    splitter = _Splitter(prefix)
    return splitter.tree(state, "", 0), splitter.tensors


def join(tree: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """
    The state that :func:`split` was given.

    Raises:
        CheckpointError: If the tree is not of that form, or a tensor is missing.
    """
    try:
        return _joined(tree, tensors)
    except _MALFORMED as error:
        raise CheckpointError(f"this is no stored state: {error!r}") from error


class _Splitter:
    """
    Collects the tensors of one state.

    It runs while training waits, over thousands of values: the usual types are looked for first.
    """

    def __init__(self, prefix: str) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._prefix = prefix

    def tree(self, value: Any, where: str, depth: int) -> Any:
        """
        What is left of a value.

        Args:
            where: It is in the state.
            depth: How many values it is in.
        """
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is torch.Tensor or isinstance(value, torch.Tensor):
            return self._tensor(value, where)
        if kind is int or isinstance(value, int):
            if value.bit_length() > _MAX_INTEGER_BITS:
                raise self._refusal(where, "number of too many digits")
            return value
        if isinstance(value, (float, str)):
            return value
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array(value, where)
        if depth == _MAX_DEPTH:
            raise UserCodeError(f"{self._prefix} is nested too deeply, or holds itself")
        if isinstance(value, Mapping):
            return self._mapping(value, where, depth + 1)
        if isinstance(value, (list, tuple)):
            items = [self.tree(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
            return items if isinstance(value, list) else {_KIND: "tuple", "items": items}
        raise self._refusal(where, kind.__name__)

    def _mapping(self, value: Mapping[Any, Any], where: str, depth: int) -> dict[str, Any]:
        before = f"{where}." if where else ""
        items = [
            [
                key if type(key) is str else self.tree(key, f"{where}[key]", depth),
                self.tree(item, f"{before}{key}", depth),
            ]
            for key, item in value.items()
        ]
        return {_KIND: "counter" if isinstance(value, Counter) else "dict", "items": items}

    def _tensor(self, value: torch.Tensor, where: str) -> dict[str, Any]:
        local = value
        if isinstance(value, DTensor):
            if any(placement.is_partial() for placement in value.placements):
                raise self._refusal(where, "DTensor of partial sums")
            local = value.to_local()
        dense = local.layout is torch.strided and not (local.is_nested or local.is_quantized)
        if type(local) not in _TENSORS or not dense:
            kind = f"{type(local).__name__} of {local.dtype} in layout {local.layout}"
            raise self._refusal(where, kind)
        if local.is_meta or (local.dtype in PACKED and not local.is_contiguous()):
            raise self._refusal(where, f"{local.device} tensor of {local.dtype}")
        return {_KIND: "tensor", "at": self._add(value, where)}

    def _array(self, value: np.ndarray[Any, Any] | np.generic, where: str) -> dict[str, Any]:
        array = np.array(value, order="C")
        dtype = array.dtype
        plain = isinstance(value, np.generic) or type(value) in (np.ndarray, np.memmap)
        if not plain or dtype.hasobject or not dtype.itemsize or np.dtype(dtype.str) != dtype:
            raise self._refusal(where, f"{type(value).__name__} of {dtype}")
        kind = "scalar" if isinstance(value, np.generic) else "array"
        raw = torch.from_numpy(array.reshape(-1).view(np.uint8))
        node = {_KIND: kind, "dtype": dtype.str, "shape": list(np.shape(value))}
        return {**node, "at": self._add(raw, where)}

    def _add(self, tensor: torch.Tensor, where: str) -> str:
        name = first = f"{self._prefix}/{where}"
        number = 1
        while name in self.tensors:  # a key "a.b" beside a key "a" that holds a "b"
            number += 1
            name = f"{first}#{number}"
        self.tensors[name] = tensor.detach() if tensor.requires_grad else tensor
        return name

    def _refusal(self, where: str, what: str) -> UserCodeError:
        place = f"{self._prefix}{where}" if where[:1] in ("", "[") else f"{self._prefix}.{where}"
        return UserCodeError(
            f"{place} is a {what}, which can't be stored",
            "Let state_dict() return numbers, texts, dense tensors, plain arrays, and lists or "
            "dicts of them: what loads without executing code.",
        )


def _joined(node: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(node, list):
        return [_joined(item, tensors) for item in node]
    if not isinstance(node, dict):
        return node
    match node[_KIND]:
        case "tensor":
            return tensors[node["at"]]
        case "array" | "scalar" as kind:
            raw = tensors[node["at"]].numpy().view(np.dtype(node["dtype"]))
            array = raw.reshape(node["shape"])
            return array[()] if kind == "scalar" else array
        case "tuple":
            return tuple(_joined(item, tensors) for item in node["items"])
        case "dict" | "counter" as kind:
            pairs = [(_joined(k, tensors), _joined(v, tensors)) for k, v in node["items"]]
            return Counter(dict(pairs)) if kind == "counter" else dict(pairs)
        case kind:
            raise CheckpointError(f"the state holds a {kind!r}, which this version doesn't know")
