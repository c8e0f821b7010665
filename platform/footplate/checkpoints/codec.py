"""
State as JSON and raw tensors: no pickle, so that loading can't execute anything.

A state (what ``state_dict()`` returns) is a tree of plain Python values with tensors and arrays
in it. The tensors go into a safetensors file, under numbers; the tree, with those numbers in
their places, goes into the same file's header.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError

from footplate.errors import CheckpointError

__all__ = ["decode_state", "encode_state"]

_TREE = "footplate.tree"
_KIND = "$"
# Types that a safetensors file can name. A tensor of any other is stored as its bytes.
_NAMED = frozenset(
    {
        torch.bool,
        *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
    }
)
_MALFORMED = (
    SafetensorError,
    struct.error,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,  # from torch; from Python if nested too deeply
    SyntaxError,  # from numpy, of the name of a type
    TypeError,
    ValueError,
)


def encode_state(state: Any) -> bytes:
    """
    The bytes of a state, ready to be stored.

    Tensors are copied to the CPU; the state may change afterwards.

    Raises:
        CheckpointError: If something in it is of a type that can't be stored, naming where.
    """
    tensors: dict[str, torch.Tensor] = {}
    try:
        tree = json.dumps(_encode(state, "", tensors), separators=(",", ":"))
        content: bytes = safetensors.torch.save(tensors, metadata={_TREE: tree})
    except RecursionError:
        raise CheckpointError("the state is nested too deeply, or holds itself") from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"the state can't be stored: {error}") from error
    return content


def decode_state(content: bytes) -> Any:
    """
    The state that :func:`encode_state` was given, tensors on the CPU.

    Raises:
        CheckpointError: If the bytes are not of that form.
    """
    try:
        header_length = struct.unpack("<Q", content[:8])[0]
        tree = json.loads(content[8 : 8 + header_length])["__metadata__"][_TREE]
        return _decode(json.loads(tree), safetensors.torch.load(content))
    except _MALFORMED as error:
        raise CheckpointError(f"these bytes are no stored state: {error!r}") from error


def _encode(value: Any, where: str, tensors: dict[str, torch.Tensor]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        return _encode_tensor(value, where, tensors)
    if isinstance(value, (np.ndarray, np.generic)):
        return _encode_array(value, where, tensors)
    if isinstance(value, Mapping):
        items = [
            [_encode(key, f"{where}[key]", tensors), _encode(item, f"{where}.{key}", tensors)]
            for key, item in value.items()
        ]
        return {_KIND: "counter" if isinstance(value, Counter) else "dict", "items": items}
    if isinstance(value, (list, tuple)):
        values = [_encode(item, f"{where}[{i}]", tensors) for i, item in enumerate(value)]
        return values if isinstance(value, list) else {_KIND: "tuple", "items": values}
    raise _refusal(where, type(value).__name__)


def _encode_tensor(
    value: torch.Tensor, where: str, tensors: dict[str, torch.Tensor]
) -> dict[str, Any]:
    tensor = value.detach()
    dense = tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized)
    if type(tensor) is not torch.Tensor or not dense:
        kind = f"{type(tensor).__name__} of {tensor.dtype} in layout {tensor.layout}"
        raise _refusal(where, kind)
    node: dict[str, Any] = {_KIND: "tensor"}
    try:
        if tensor.dtype not in _NAMED:
            dtype = str(tensor.dtype).removeprefix("torch.")
            node |= {"dtype": dtype, "shape": list(tensor.shape)}
            tensor = tensor.resolve_conj().contiguous().reshape(-1).view(torch.uint8)
        return {**node, "at": _add(tensor, tensors)}
    except NotImplementedError as error:  # a type that can't be copied, or no data at all
        raise _refusal(where, f"{tensor.device} tensor of {tensor.dtype}") from error


def _encode_array(
    value: np.ndarray[Any, Any] | np.generic, where: str, tensors: dict[str, torch.Tensor]
) -> dict[str, Any]:
    array = np.array(value, order="C")
    dtype = array.dtype
    plain = isinstance(value, np.generic) or type(value) in (np.ndarray, np.memmap)
    if not plain or dtype.hasobject or not dtype.itemsize or np.dtype(dtype.str) != dtype:
        raise _refusal(where, f"{type(value).__name__} of {dtype}")
    kind = "scalar" if isinstance(value, np.generic) else "array"
    raw = torch.from_numpy(array.reshape(-1).view(np.uint8))
    node = {_KIND: kind, "dtype": dtype.str, "shape": list(np.shape(value))}
    return {**node, "at": _add(raw, tensors)}


def _refusal(where: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"{where.lstrip('.') or 'the state'} is a {what}, which can't be stored",
        "Let state_dict() return numbers, texts, dense tensors, plain arrays, and lists or dicts "
        "of them: what loads without executing code.",
    )


def _add(tensor: torch.Tensor, tensors: dict[str, torch.Tensor]) -> str:
    """Copy a tensor: what is stored must not change, nor share memory with another."""
    key = str(len(tensors))
    tensors[key] = tensor.to("cpu", copy=True, memory_format=torch.contiguous_format)
    return key


def _decode(node: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(node, list):
        return [_decode(item, tensors) for item in node]
    if not isinstance(node, dict):
        return node
    match node[_KIND]:
        case "tensor":
            return _decode_tensor(node, tensors[node["at"]])
        case "array" | "scalar" as kind:
            raw = tensors[node["at"]].numpy().view(np.dtype(node["dtype"]))
            array = raw.reshape(node["shape"])
            return array[()] if kind == "scalar" else array
        case "tuple":
            return tuple(_decode(item, tensors) for item in node["items"])
        case "dict" | "counter" as kind:
            pairs = [(_decode(k, tensors), _decode(v, tensors)) for k, v in node["items"]]
            return Counter(dict(pairs)) if kind == "counter" else dict(pairs)
        case kind:
            raise CheckpointError(f"the state holds a {kind!r}, which this version doesn't know")


def _decode_tensor(node: Mapping[str, Any], tensor: torch.Tensor) -> torch.Tensor:
    if "dtype" not in node:
        return tensor
    dtype = getattr(torch, node["dtype"])
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{node['dtype']!r} is no type of tensors")
    return tensor.view(dtype).reshape(node["shape"])
