"""Records, written and read back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue, ValidationError

from footplate.errors import ObjectNotFoundError, StoreError
from footplate.store import (
    AttemptResult,
    Claim,
    DataVersion,
    End,
    Failure,
    Notes,
    Progress,
    Request,
    RunData,
    RunRecord,
    Store,
    read_record,
    read_record_if_there,
    to_json,
)

_RECORDS: list[type[BaseModel]] = [
    AttemptResult,
    Claim,
    DataVersion,
    End,
    Failure,
    Notes,
    Progress,
    Request,
    RunData,
    RunRecord,
]
_PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
_JSON: st.SearchStrategy[Any] = st.recursive(
    _PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
# What an unconstrained JsonValue or Any field is filled with.
st.register_type_strategy(JsonValue, _JSON)  # type: ignore[arg-type]


def _of(kind: type[BaseModel]) -> st.SearchStrategy[BaseModel]:
    fields = {
        name: st.dictionaries(st.text(), _JSON)
        if name in ("spec", "code", "tracking")
        else st.from_type(field.annotation)  # type: ignore[arg-type]
        for name, field in kind.model_fields.items()
        if name != "failure"
    }
    return st.builds(kind, **fields)


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@pytest.mark.parametrize("kind", _RECORDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_record_round_trips(store: Store, kind: type[BaseModel], data: st.DataObject) -> None:
    """All values come back, NaN and infinity included."""
    record = data.draw(_of(kind))
    store.put("record", to_json(record))
    # By their text, since NaN equals nothing.
    assert repr(read_record(store, "record", kind)) == repr(record)
    assert repr(kind.model_validate_json(record.model_dump_json())) == repr(record)


def test_a_failure_travels_inside_its_result(store: Store) -> None:
    """The cause of a failed attempt is read back with the result."""
    failure = Failure(time=1.0, rank=3, step=7, error="E", category="c", message="m", exit_code=10)
    result = AttemptResult(status="failed", started=0.0, ended=1.0, failure=failure)
    store.put("result", to_json(result))
    assert read_record(store, "result", AttemptResult).failure == failure


def test_bytes_that_are_no_text_do_not_keep_a_failure_from_being_written(store: Store) -> None:
    """A message may quote a file name that is not valid UTF-8."""
    message = b"no such file: \xff.csv".decode(errors="surrogateescape")
    store.put("f", to_json(Failure(time=1.0, error="E", category="c", message=message)))
    assert read_record(store, "f", Failure).message == "no such file: ?.csv"


@pytest.mark.parametrize("kind", _RECORDS, ids=lambda kind: kind.__name__)
def test_keys_of_a_newer_version_are_ignored(store: Store, kind: type[BaseModel]) -> None:
    """An older client reads what a newer driver wrote."""
    values = {
        name: {
            "spec": {},
            "sets": {},
            "status": "failed",
            "stage": "training",
            "kind": "new_cluster",
        }.get(name, 1)
        if field.annotation is not str
        else "text"
        for name, field in kind.model_fields.items()
        if field.is_required()
    }
    store.put("record", json.dumps(values | {"of_version_9": {"x": 1}}).encode())
    assert not hasattr(read_record(store, "record", kind), "of_version_9")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b"null", b"{}", b'{"step": "many"}', b"[" * 100_000],
)
def test_a_malformed_record_is_named(store: Store, content: bytes) -> None:
    """The error says which object is wrong and what it should have been."""
    store.put("runs/end.json", content)
    for read in (read_record, read_record_if_there):
        with pytest.raises(StoreError, match=r"runs/end\.json is no End"):
            read(store, "runs/end.json", End)


def test_a_record_that_is_not_there(store: Store) -> None:
    """Absence is an error or an answer, as the caller wants."""
    with pytest.raises(ObjectNotFoundError):
        read_record(store, "end.json", End)
    assert read_record_if_there(store, "end.json", End) is None


@pytest.mark.parametrize("kind", _RECORDS, ids=lambda kind: kind.__name__)
def test_records_are_frozen(kind: type[BaseModel]) -> None:
    """What was read is not changed by accident."""
    record = kind.model_construct()
    with pytest.raises(ValidationError, match="frozen"):
        setattr(record, next(iter(kind.model_fields)), 1)


def test_a_stage_of_a_newer_driver_is_no_error() -> None:
    """What is not known here yet must not hide the rest."""
    progress = Progress.model_validate({"stage": "resharding", "time": 1.0, "step": 3})
    assert (progress.stage, progress.step) == ("resharding", 3)
