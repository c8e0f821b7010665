"""The section of the job description that says which other run's checkpoint a run starts from."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from footplate.spec.section import Section
from footplate.spec.uri import PlainUri

__all__ = ["InitFrom"]


class InitFrom(Section):
    """A checkpoint of another run, which this one starts from."""

    run: str | None = Field(
        None,
        min_length=1,
        description=(
            "Another run in the same store: its name, of which the newest run is taken, or its UID."
        ),
    )
    uri: PlainUri | None = Field(
        None,
        min_length=1,
        description=(
            "Instead of run: the folder of a run or of a checkpoint, s3://..., gs://... or "
            "relative to the spec file."
        ),
    )
    endpoint: PlainUri | None = Field(
        None, description="Of the S3-compatible server of uri; left out: that of the store."
    )
    region: str | None = Field(
        None, description="Of the bucket of uri; left out: that of the store."
    )
    step: int | None = Field(
        None, ge=1, description="Of the checkpoint; left out: the newest one that is whole."
    )
    what: Literal["weights", "everything"] = Field(
        "weights",
        description=(
            "weights: models alone, all else starts anew. everything: as if that run went on."
        ),
    )

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        if (self.run is None) == (self.uri is None):
            raise ValueError("name where it is by exactly one of run and uri")
        if self.uri is None and (self.endpoint or self.region):
            raise ValueError("endpoint and region are of uri, and there is no uri")
        return self
