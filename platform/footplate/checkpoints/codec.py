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


def encode_state(state: Any) -> bytes:
    """
    The bytes of a state, ready to be stored.

    Tensors are copied to the CPU; the state may change afterwards.

    Raises:
        CheckpointError: If something in it is of a type that can't be stored, naming where.
    """
    tensors: dict[str, torch.Tensor] = {}
    tree = json.dumps(_encode(state, "", tensors), separators=(",", ":"))
    try:
        content: bytes = safetensors.torch.save(tensors, metadata={_TREE: tree})
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
    except (SafetensorError, KeyError, ValueError, TypeError, struct.error) as error:
        raise CheckpointError(f"these bytes are no stored state: {error!r}") from error


def _encode(value: Any, where: str, tensors: dict[str, torch.Tensor]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        return {_KIND: "tensor", "at": _add(value.detach(), tensors)}
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.ascontiguousarray(value)
        raw = torch.from_numpy(array.reshape(-1).view(np.uint8).copy())
        kind = {_KIND: "array", "dtype": array.dtype.str, "shape": list(np.shape(value))}
        return {**kind, "at": _add(raw, tensors)}
    if isinstance(value, Mapping):
        items = [
            [_encode(key, f"{where}[key]", tensors), _encode(item, f"{where}.{key}", tensors)]
            for key, item in value.items()
        ]
        return {_KIND: "counter" if isinstance(value, Counter) else "dict", "items": items}
    if isinstance(value, (list, tuple)):
        values = [_encode(item, f"{where}[{i}]", tensors) for i, item in enumerate(value)]
        return values if isinstance(value, list) else {_KIND: "tuple", "items": values}
    raise CheckpointError(
        f"{where.lstrip('.') or 'the state'} is a {type(value).__name__}, "
        "which can't be stored without executing code when it is loaded",
        "Let state_dict() return numbers, texts, tensors, arrays, and lists or dicts of them.",
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
            return tensors[node["at"]]
        case "array":
            raw = tensors[node["at"]].numpy().view(np.dtype(node["dtype"]))
            return raw.reshape(node["shape"])
        case "tuple":
            return tuple(_decode(item, tensors) for item in node["items"])
        case "dict" | "counter" as kind:
            pairs = [(_decode(k, tensors), _decode(v, tensors)) for k, v in node["items"]]
            return Counter(dict(pairs)) if kind == "counter" else dict(pairs)
        case kind:
            raise CheckpointError(f"the state holds a {kind!r}, which this version doesn't know")
