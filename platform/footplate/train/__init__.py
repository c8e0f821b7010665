"""What research code imports: the context that a training function is given."""

from footplate.train.context import Batch, Context

__all__ = ["Batch", "Context"]
