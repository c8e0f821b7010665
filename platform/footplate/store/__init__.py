"""Object storage: the door to it, the layout of a run in it, its records and its attempts."""

from footplate.store.asking import ask_many
from footplate.store.attempts import (
    attempt_numbers,
    check_not_fenced,
    claim_next,
    counted_until,
    read_claims,
)
from footplate.store.layout import (
    CODE_ARCHIVES,
    AttemptPaths,
    CheckpointName,
    RunPaths,
    code_archive_path,
)
from footplate.store.log_segments import newest_segments, segments
from footplate.store.objects import ObjectInfo, Store, was_refused, was_throttled
from footplate.store.open import open_store
from footplate.store.records import (
    INTERRUPTED,
    AttemptResult,
    Claim,
    DataVersion,
    End,
    Failure,
    Notes,
    Notice,
    Progress,
    Request,
    RunData,
    RunRecord,
    SaveInterval,
    StopRequest,
    read_record,
    read_record_if_there,
    to_json,
)

__all__ = [
    "CODE_ARCHIVES",
    "INTERRUPTED",
    "AttemptPaths",
    "AttemptResult",
    "CheckpointName",
    "Claim",
    "DataVersion",
    "End",
    "Failure",
    "Notes",
    "Notice",
    "ObjectInfo",
    "Progress",
    "Request",
    "RunData",
    "RunPaths",
    "RunRecord",
    "SaveInterval",
    "StopRequest",
    "Store",
    "ask_many",
    "attempt_numbers",
    "check_not_fenced",
    "claim_next",
    "code_archive_path",
    "counted_until",
    "newest_segments",
    "open_store",
    "read_claims",
    "read_record",
    "read_record_if_there",
    "segments",
    "to_json",
    "was_refused",
    "was_throttled",
]
