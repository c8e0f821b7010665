"""A model whose state is large and whose steps are short, on two ranks."""

from __future__ import annotations

import torch
import torch.distributed
import xxhash
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

__all__ = ["Training", "digest_of", "tensors_of"]

_WIDTH = 2048
_BATCH = 4


class Training:
    """
    A stack of linear layers under AdamW: three numbers of four bytes for every parameter.

    Args:
        megabytes: Of the parameters.
        seed: Of them, and of what they are trained on.
    """

    def __init__(self, megabytes: int, seed: int = 0) -> None:
        torch.manual_seed(seed)
        layer_bytes = 4 * _WIDTH * (_WIDTH + 1)
        layers = max(round(megabytes * 2**20 / layer_bytes), 1)
        self.module = nn.Sequential(*[nn.Linear(_WIDTH, _WIDTH) for _ in range(layers)])
        ranks = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        self.model = DistributedDataParallel(self.module) if ranks > 1 else self.module
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=1e-5)
        self._batch = torch.randn(_BATCH, _WIDTH)

    def step(self) -> None:
        """One optimizer step."""
        self.model(self._batch).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def state(self) -> dict[str, object]:
        """What a checkpoint holds, as the objects give it: it changes with the next step."""
        return {"model": self.module.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict[str, object]) -> None:
        """Take over a state."""
        self.module.load_state_dict(state["model"])  # type: ignore[arg-type]
        self.optimizer.load_state_dict(state["optimizer"])  # type: ignore[arg-type]

    def spoil(self) -> None:
        """Overwrite all of the state, so that what was restored cannot have been there before."""
        for tensor in tensors_of(self.state()):
            tensor.detach().fill_(-1)


def tensors_of(state: object) -> list[Tensor]:
    """All tensors in a nested state, in the order of its keys."""
    if isinstance(state, Tensor):
        return [state.detach()]
    if isinstance(state, dict):
        return [tensor for key in state for tensor in tensors_of(state[key])]
    if isinstance(state, (list, tuple)):
        return [tensor for item in state for tensor in tensors_of(item)]
    return []


def digest_of(state: object) -> str:
    """Of every byte of the state."""
    digest = xxhash.xxh3_64()
    for tensor in tensors_of(state):
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
