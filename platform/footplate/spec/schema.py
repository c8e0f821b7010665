"""The JSON Schema of spec files, with which editors complete keys and mark mistakes."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from footplate.spec.cadence import Cadence
from footplate.spec.model import Job

__all__ = ["json_schema"]


def json_schema() -> dict[str, Any]:
    """The schema of a whole file, in JSON Schema 2020-12."""
    schema = Job.model_json_schema(schema_generator=_Generator)
    return {"$schema": GenerateJsonSchema.schema_dialect} | schema


class _Generator(GenerateJsonSchema):
    def encode_default(self, dft: Any) -> Any:
        # As it is written in a file, not as it is held in memory.
        return str(dft) if isinstance(dft, Cadence) else super().encode_default(dft)
