"""The job description and its validation."""

from footplate.spec.cadence import Cadence, parse_cadence
from footplate.spec.data import (
    CACHE_VARIABLE,
    Bucket,
    Cache,
    DataPart,
    Dataset,
    MixedPart,
    Pack,
)
from footplate.spec.load import load
from footplate.spec.merge import changed_keys, merged, parse_override
from footplate.spec.model import (
    DATA_WORKER_LABELS,
    RANK_RESOURCE,
    Checkpoint,
    DataWorkers,
    Evaluate,
    Job,
    Keep,
    Limits,
    Queue,
    Store,
    Tracking,
    Workers,
)
from footplate.spec.origin import InitFrom
from footplate.spec.quantity import parse_quantity

__all__ = [
    "CACHE_VARIABLE",
    "DATA_WORKER_LABELS",
    "RANK_RESOURCE",
    "Bucket",
    "Cache",
    "Cadence",
    "Checkpoint",
    "DataPart",
    "DataWorkers",
    "Dataset",
    "Evaluate",
    "InitFrom",
    "Job",
    "Keep",
    "Limits",
    "MixedPart",
    "Pack",
    "Queue",
    "Store",
    "Tracking",
    "Workers",
    "changed_keys",
    "load",
    "merged",
    "parse_cadence",
    "parse_override",
    "parse_quantity",
]
