"""From what was seen to what went wrong; pure."""

from footplate.failures.root_cause import is_collateral, root_cause

__all__ = ["is_collateral", "root_cause"]
