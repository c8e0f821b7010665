"""The sections of the job description that say what is trained on, and in which order."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from footplate.spec.quantity import QuantityField
from footplate.spec.section import Section

__all__ = ["CACHE_VARIABLE", "Bucket", "Cache", "DataPart", "Dataset", "MixedPart", "Pack"]

CACHE_VARIABLE = "FOOTPLATE_CACHE"
"""The environment variable that says where in a pod the cache's volume is."""


_PREPARE = r"^.+\.py:[A-Za-z_]\w*$"
_FUNCTION = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"


class DataPart(Section):
    """Samples, by the manifest that describes them or the function that prepares them."""

    manifest: str | None = Field(
        None, description="Path or URI of an immutable data manifest; relative to the spec file."
    )
    prepare: str | None = Field(
        None,
        pattern=_PREPARE,
        description="'path/to/prepare.py:function' that makes the data set when it is first used.",
    )
    options: dict[str, JsonValue] = Field(
        default_factory=dict, description="Keyword arguments of the prepare function."
    )

    @model_validator(mode="after")
    def _options_are_of_prepare(self) -> Self:
        if self.options and self.prepare is None:
            raise ValueError("options are arguments of prepare, and there is no prepare")
        return self


class MixedPart(DataPart):
    """One part of a mixture."""

    weight: float = Field(
        1.0, gt=0, allow_inf_nan=False, strict=False, description="Its share, among all weights."
    )

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        if (self.manifest is None) == (self.prepare is None):
            raise ValueError("name the data by exactly one of manifest and prepare")
        return self


class Pack(Section):
    """Documents joined and cut into sequences of one length."""

    column: str = Field(description="The column of lists of numbers.")
    length: int = Field(ge=1, description="Numbers in a sequence, which then is a sample.")


class Bucket(Section):
    """Samples of similar length trained on together, and padded to the longest of their batch."""

    column: str = Field(description="The column of lists of numbers whose lengths count.")
    samples: int = Field(
        512, ge=2, description="How many of similar length follow each other; many global batches."
    )
    pad: int = Field(0, description="What fills the shorter ones up.")


class Dataset(DataPart):
    """One data set: where it is and how it is read."""

    mix: tuple[MixedPart, ...] | None = Field(
        None,
        strict=False,
        description=(
            "Several data sets of one schema as one, each beginning anew when it is used up; "
            "an epoch is as many samples as they have together."
        ),
    )
    batch_size: int = Field(ge=1, description="Samples a rank takes for each step.")
    shuffle: bool = Field(True, description="A new order every epoch, a function of the seed.")
    pool: int = Field(
        8,
        ge=1,
        description=(
            "Row groups that are shuffled together, and held in memory together; they are "
            "themselves drawn at random from all of the data."
        ),
    )
    columns: tuple[str, ...] | None = Field(
        None, min_length=1, strict=False, description="Columns to read; left out: all."
    )
    map: tuple[Annotated[str, Field(pattern=_FUNCTION)], ...] = Field(
        (),
        strict=False,
        description=(
            "Functions 'module:function' that Ray Data's tasks apply to the samples, one after "
            "the other: columns in, columns of as many samples out."
        ),
    )
    pack: Pack | None = None
    bucket: Bucket | None = None
    last: Literal["drop", "pad", "keep"] = Field(
        "drop",
        description=(
            "An incomplete last training batch of an epoch: left out, filled up from the start "
            "of the epoch's order, or kept smaller, shared out evenly. Evaluation always covers "
            "every sample once."
        ),
    )
    skip_rows: int = Field(
        0,
        ge=0,
        description=(
            "Rows that may be replaced by others because their row group is corrupt; one more "
            "is a failure. They are counted in MLflow."
        ),
    )

    @property
    def parts(self) -> tuple[DataPart, ...]:
        """What it is made of: itself, or the parts of its mixture."""
        return self.mix or (self,)

    @property
    def weights(self) -> tuple[float, ...]:
        """Of the parts."""
        return tuple(part.weight for part in self.mix or ()) or (1.0,)

    def named_parts(self, name: str) -> dict[str, DataPart]:
        """The parts by the names that their versions are recorded under."""
        if self.mix is None:
            return {name: self}
        return {f"{name}.mix.{number}": part for number, part in enumerate(self.mix)}

    @field_validator("mix")
    @classmethod
    def _of_several(cls, mix: tuple[MixedPart, ...] | None) -> tuple[MixedPart, ...] | None:
        # Not a bound of the field: wrong parts are not counted, and would be a problem twice.
        if mix is not None and len(mix) < 2:
            raise ValueError("a mixture has at least two parts")
        return mix

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        ways = (self.manifest, self.prepare, self.mix)
        if sum(way is not None for way in ways) != 1:
            raise ValueError("name the data by exactly one of manifest, prepare and mix")
        return self

    @model_validator(mode="after")
    def _one_way_to_treat_lengths(self) -> Self:
        if self.pack and self.bucket:
            raise ValueError("packed sequences have one length: remove bucket or pack")
        return self

    @model_validator(mode="after")
    def _what_is_skipped_is_counted(self) -> Self:
        if self.map and self.skip_rows:
            raise ValueError(
                "rows that Ray Data's tasks skip are not counted: remove skip_rows or map"
            )
        return self

    @model_validator(mode="after")
    def _what_goes_by_lengths_is_whole(self) -> Self:
        if self.skip_rows and (self.pack or self.bucket):
            raise ValueError(
                "rows that stand in for others have other lengths, and the order goes by them: "
                f"remove skip_rows or {'pack' if self.pack else 'bucket'}"
            )
        return self


class Cache(Section):
    """A folder of each node where row groups are kept once they have been read."""

    size: QuantityField = Field("50Gi", description="The least used make room beyond it.")
    host_path: str | None = Field(
        None,
        pattern=r"^/.+",
        description=(
            "A folder of the node, which then outlives the pods; left out: a volume of the pod's "
            "own."
        ),
    )
