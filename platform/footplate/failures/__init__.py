"""From what was seen to what went wrong; pure."""

from footplate.failures.last_words import is_own_mistake, is_worker_loss
from footplate.failures.root_cause import is_collateral, root_cause

__all__ = ["is_collateral", "is_own_mistake", "is_worker_loss", "root_cause"]
