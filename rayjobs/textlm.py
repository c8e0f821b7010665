"""
A decoder-only transformer over bytes: the smallest honest language model.

It sees a window of text and predicts every byte from those before it, so it needs no tokenizer
and its loss means the same for every text: nats a byte.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, linear, scaled_dot_product_attention
from torch.optim.lr_scheduler import LambdaLR

from footplate.train import Batch, Context

BYTES = 256
INITIAL_STD = 0.02
NATS_PER_BIT = math.log(2)


class Attention(nn.Module):
    """Causal self-attention with several heads and rotary positions."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        """Mix positions; x is (N, length, width), rotation is that of the positions."""
        heads = self.inputs(x).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)
        query, key, value = heads.unbind(dim=2)  # each (N, heads, length, head width)
        mixed = scaled_dot_product_attention(
            rotated(query, rotation), rotated(key, rotation), value, is_causal=True
        )
        y: Tensor = self.dropout(self.output(mixed.transpose(1, 2).flatten(2)))
        return y


class Block(nn.Module):
    """Attention, then a network for each position; each adds to its normalised input's stream."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.mlp_norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        """Add both parts to the stream (N, length, width)."""
        x = x + self.attention(self.attention_norm(x), rotation)
        hidden = gelu(self.wide(self.mlp_norm(x)))
        y: Tensor = x + self.dropout(self.narrow(hidden))
        return y


class ByteTransformer(nn.Module):
    """
    Bytes in, logits of the next byte out; one matrix both embeds bytes and scores them.

    Args:
        layers: Blocks, one after another.
        width: Of the stream between them; a multiple of twice the heads.
        heads: Of the attention.
        dropout: Share of the embeddings, and of what every part adds, left out in training.
    """

    def __init__(self, layers: int, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        if width % (2 * heads):
            raise ValueError(f"width {width} is no multiple of twice the heads, {2 * heads}")
        self.head_width = width // heads
        self.embedding = nn.Embedding(BYTES, width)
        self.dropout = nn.Dropout(dropout)
        blocks = [Block(width, heads, dropout) for _ in range(layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        self.apply(initialise)
        # Two additions a block: scaled so that the stream's variance does not grow with depth.
        for block in blocks:
            for weight in (block.attention.output.weight, block.narrow.weight):
                nn.init.normal_(weight, std=INITIAL_STD / math.sqrt(2 * layers))

    def forward(self, text: Tensor) -> Tensor:
        """Logits (N, length, 256) of the byte after each of ``text`` (N, length)."""
        rotation = rotation_of(text.shape[1], self.head_width, text.device)
        x = self.dropout(self.embedding(text.long()))
        for block in self.blocks:
            x = block(x, rotation)
        return linear(self.norm(x), self.embedding.weight)


def initialise(module: nn.Module) -> None:
    """Small normal weights and no biases."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=INITIAL_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def rotation_of(length: int, head_width: int, device: torch.device) -> Tensor:
    """Rotary positions: cosine and sine of each position's angles, (2, length, width / 2)."""
    frequencies = 10000 ** -(torch.arange(0, head_width, 2, device=device) / head_width)
    angles = torch.outer(torch.arange(length, device=device), frequencies)
    return torch.stack((angles.cos(), angles.sin()))


def rotated(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn the pairs of features of (N, heads, length, head width) by their position's angles."""
    cosine, sine = rotation
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    """Mean cross-entropy of every byte but the first, in nats."""
    text = batch["text"]
    logits = model(text[:, :-1])
    return cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten().long())


def optimizer_for(model: nn.Module, lr: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW that pulls matrices towards zero, but not biases and norms."""
    matrices = [weight for weight in model.parameters() if weight.dim() >= 2]
    vectors = [weight for weight in model.parameters() if weight.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def schedule_for(optimizer: torch.optim.Optimizer, warmup_steps: int, total_steps: int) -> LambdaLR:
    """Linear warm-up, then a cosine down to a tenth of the learning rate."""

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        done = (step - warmup_steps) / max(1, total_steps - warmup_steps)
        return 0.55 + 0.45 * math.cos(math.pi * min(1.0, done))

    return LambdaLR(optimizer, factor)


def train(ctx: Context) -> None:
    """Train; the loss is in nats a byte, and held-out text is measured in bits a byte, too."""
    params = ctx.params
    model = ctx.prepare(
        ByteTransformer(params["layers"], params["width"], params["heads"], params["dropout"])
    )
    optimizer = optimizer_for(model, params["lr"], params["weight_decay"])
    scheduler = schedule_for(optimizer, params["warmup_steps"], ctx.total_steps)
    ctx.track(model=model, optimizer=optimizer, scheduler=scheduler)

    def measured(batch: Batch) -> dict[str, Tensor]:
        loss = loss_of(model, batch)
        return {"loss": loss, "bits_per_byte": loss / NATS_PER_BIT}

    for batch in ctx.batches("train"):
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), params["clip_norm"])
        optimizer.step()
        lr = scheduler.get_last_lr()[0]
        scheduler.step()
        ctx.step(loss=loss, gradient_norm=norm, lr=lr)

        if ctx.due("evaluate"):
            ctx.evaluate(measured, data="valid")
