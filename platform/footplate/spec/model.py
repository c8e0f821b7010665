"""
The job description.

One frozen model for a section of the file, one field for a key. What a key means, its unit and
what leaving it out means stand in the field's description, from which the JSON Schema for
editors is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticKnownError

from footplate.errors import SpecError
from footplate.spec.cadence import (
    Cadence,
    CadenceField,
    SaveCadenceField,
    parse_cadence,
    parse_save_cadence,
)
from footplate.spec.data import Cache, DataPart, Dataset
from footplate.spec.merge import merged
from footplate.spec.origin import InitFrom
from footplate.spec.problems import problems_of
from footplate.spec.quantity import QuantityField
from footplate.spec.section import Section
from footplate.spec.sharing import sharing_problems, usable_counts
from footplate.spec.uri import PlainUri

__all__ = [
    "DATA_WORKER_LABELS",
    "RANK_RESOURCE",
    "Checkpoint",
    "DataWorkers",
    "Evaluate",
    "Job",
    "Keep",
    "Limits",
    "Queue",
    "Store",
    "Tracking",
    "Workers",
]

DATA_WORKER_LABELS = MappingProxyType({"footplate.dev/role": "data"})
"""Labels of data worker pods, for Kubernetes and for Ray, whose tasks find such pods by them."""

RANK_RESOURCE = "footplate_rank"
"""
What a worker pod has one of for each rank, and a rank takes one of, in Ray's accounting.

CPUs alone would let two ranks share a pod while another stays empty.
"""

# KubeRay refuses RayJob names over 47 characters; 40 leaves room for what is derived from them.
_NAME = r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"
_ENTRYPOINT = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
_RUNTIME = r"^[a-z][-a-z0-9]*@\d+$"
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"


class Workers(Section):
    """The worker group: how many pods and what each of them has."""

    count: int = Field(1, ge=1, description="Worker pods. Locally: groups of ranks.")
    min: int | None = Field(
        None,
        ge=1,
        description="With max, instead of count: as few pods training goes on with.",
    )
    max: int | None = Field(
        None,
        ge=1,
        description="With min, instead of count: as many pods training begins with, and takes "
        "again once they can be had. What a step is made of is always as with all of them.",
    )
    wait: CadenceField = Field(
        parse_cadence("1m"),
        description="With min: how long lost pods are waited for before training goes on without.",
    )
    grow_every: CadenceField = Field(
        parse_cadence("5m"),
        description="With min: training takes more pods no more often than this; it saves and "
        "begins anew each time.",
    )
    ranks: int = Field(
        1, ge=1, description="Training processes a pod on CPUs; with gpus there is one for each."
    )
    gpus: int = Field(0, ge=0, description="GPUs a pod; one rank for each.")
    cpus: QuantityField = Field("2", description="CPU cores a pod.")
    memory: QuantityField = Field("4Gi", description="Memory a pod.")
    shm: QuantityField | None = Field(
        None, description="Size of /dev/shm, counted in memory; left out: the operator's choice."
    )
    parallel: Literal["ddp", "fsdp"] = Field(
        "ddp",
        description="What ctx.prepare makes of a model: ddp, a copy on each rank; fsdp, a share.",
    )

    @property
    def ranks_per_pod(self) -> int:
        """Training processes a pod: one for each GPU, or ``ranks`` on CPUs."""
        return self.gpus or self.ranks

    @property
    def world_size(self) -> int:
        """Training processes of the whole run, when all pods are there."""
        return self.count * self.ranks_per_pod

    @property
    def fewest(self) -> int:
        """Worker pods without which there is no training: ``min``, or all."""
        return self.min or self.count

    @property
    def is_elastic(self) -> bool:
        """Whether training goes on with fewer pods than it began with."""
        return self.fewest < self.count

    def shortage(self, world_size: int) -> str:
        """``3 of 4 workers``, if there are no more than these ranks; empty if none is missing."""
        missing = world_size < self.world_size
        return f"{world_size // self.ranks_per_pod} of {self.count} workers" if missing else ""

    @model_validator(mode="before")
    @classmethod
    def _count_is_max(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or values.keys().isdisjoint(("min", "max")):
            return values
        if "count" in values:
            raise ValueError("is said twice: by count, and by min and max; remove one of them")
        if not {"min", "max"} <= values.keys():
            raise ValueError("min and max belong together: with how few, and with how many")
        # A wrong max is a problem of its own.
        return {**values, "count": values["max"]} if _is_count(values["max"]) else values

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.fewest > self.count:
            raise ValueError(f"min = {self.min} is more than max = {self.max}")
        for name, cadence in (("wait", self.wait), ("grow_every", self.grow_every)):
            if cadence.unit != "seconds":
                raise ValueError(f"{name} is a time, for example '5m'")
            if name in self.model_fields_set and self.min is None:
                raise ValueError(f"{name} is for min and max, which are not said")
        return self

    @model_serializer(mode="wrap")
    def _without_count(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As it may be read again: what follows from max is not said."""
        values: dict[str, Any] = handler(self)
        if self.max is None:
            return {key: value for key, value in values.items() if key not in _OF_ELASTIC}
        return {key: value for key, value in values.items() if key != "count"}

    @model_validator(mode="after")
    def _one_way_to_say_ranks(self) -> Self:
        if self.gpus and self.ranks != 1:
            raise ValueError("with gpus there is one rank for each GPU; remove ranks")
        return self


# Keys that mean nothing unless the number of workers may change.
_OF_ELASTIC = ("wait", "grow_every")


class DataWorkers(Section):
    """Pods without GPUs and ranks, for the tasks that carry the rows of data sets with map."""

    count: int = Field(1, ge=1, description="Data worker pods.")
    cpus: QuantityField = Field("4", description="CPU cores a pod; two tasks run on each.")
    memory: QuantityField = Field("8Gi", description="Memory a pod.")
    shm: QuantityField | None = Field(
        None, description="Size of /dev/shm, counted in memory; left out: the operator's choice."
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


class Queue(Section):
    """Where Kueue admits the job; without effect on a laptop."""

    name: str = Field(min_length=1, description="LocalQueue of the namespace.")
    priority: str | None = Field(None, description="WorkloadPriorityClass.")


class Limits(Section):
    """When training ends: whichever comes first."""

    epochs: int | None = Field(None, ge=1, description="Passes over the training data.")
    max_steps: int | None = Field(None, ge=1, description="Optimizer steps.")

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.epochs is None and self.max_steps is None:
            raise ValueError("say when training ends: epochs, max_steps, or both")
        return self


class Evaluate(Section):
    """Held-out evaluation: when ``ctx.due("evaluate")`` says yes, besides after the last step."""

    every: CadenceField = Field(parse_cadence("1 epoch"), description="'1 epoch' or '500 steps'.")

    @model_validator(mode="after")
    def _counted(self) -> Self:
        if self.every.unit == "seconds":
            raise ValueError("evaluate.every is counted in steps or epochs, not in time")
        return self


class Store(Section):
    """Where runs and their checkpoints live."""

    uri: PlainUri = Field(
        ".footplate/runs",
        description="s3://bucket/prefix, gs://bucket/prefix or a folder relative to the spec file.",
    )
    endpoint: PlainUri | None = Field(None, description="Endpoint of an S3-compatible server.")
    region: str | None = Field(None, description="Region of the bucket.")
    secret: str | None = Field(
        None, description="Kubernetes Secret with the credentials; locally the usual environment."
    )


class Keep(Section):
    """Which checkpoints stay: those that any of these names, and those that are pinned."""

    last: int = Field(2, ge=1, description="The newest so many.")
    best: int = Field(
        0, ge=0, description="So many with the best values of `by`; of equal ones the first."
    )
    by: str | None = Field(
        None, min_length=1, description="The metric that best goes by, e.g. 'valid/loss'."
    )
    mode: Literal["min", "max"] = Field("min", description="Whether less or more of it is better.")
    every: CadenceField | None = Field(
        None, description="'1000 steps' or '1 epoch': the last one of each such stretch, for good."
    )

    @model_validator(mode="after")
    def _best_by_what(self) -> Self:
        if self.best and self.by is None:
            raise ValueError("best needs by: name the metric, e.g. by = 'valid/loss'")
        if self.by is not None and not self.best:
            raise ValueError(f"by = {self.by!r} needs best: say how many, e.g. best = 1")
        return self

    @field_validator("every")
    @classmethod
    def _counted(cls, every: Cadence | None) -> Cadence | None:
        if every is not None and every.unit == "seconds":
            raise ValueError(
                "is counted in steps or epochs, not in time: '1000 steps' or '1 epoch'"
            )
        return every


class Checkpoint(Section):
    """When state is saved and how long it is kept. The state after the last step always is."""

    every: SaveCadenceField = Field(
        parse_save_cadence("auto"),
        description="'500 steps', '1 epoch', '30s', '10m'; auto: as often as wastes least time, "
        "from what a save costs and how often the run fails, every ten minutes at least.",
    )
    keep: Keep = Keep()


class Tracking(Section):
    """Where MLflow records the run."""

    uri: PlainUri | None = Field(
        None, description="MLflow tracking URI; left out: an SQLite file beside the store's folder."
    )
    experiment: str | None = Field(None, description="Left out: the name of the job.")
    secret: str | None = Field(None, description="Kubernetes Secret with the credentials.")


def _count_alone(value: object) -> object:
    """``workers = 8`` is short for ``workers.count = 8``, and so for ``data_workers``."""
    return {"count": value} if isinstance(value, int) and not isinstance(value, bool) else value


def without_shorthand(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same top-level keys with shorthands written out, as merging needs them."""
    return {
        key: _count_alone(value) if key in ("workers", "data_workers") else value
        for key, value in values.items()
    }


class Job(Section):
    """
    A training job: what one spec file says.

    Frozen; :meth:`replace` makes a changed copy. Relative paths in it are relative to
    :attr:`folder`, the folder of the file it was read from.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["entrypoint", "limits"]}, {"required": ["command"]}]
        }
    )

    name: str = Field(
        pattern=_NAME, description="Lower-case letters, digits and dashes, at most 40."
    )
    command: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        strict=False,
        description=(
            "Instead of entrypoint: a script with a trainer of its own, "
            "['python', 'my_script.py']; run in the folder that code says."
        ),
    )
    entrypoint: str | None = Field(
        None,
        pattern=_ENTRYPOINT,
        validate_default=True,
        description="'module:function' of the training function.",
    )
    runtime: str = Field("torch@1", pattern=_RUNTIME, description="Platform template and version.")
    image: str | None = Field(None, description="Container image; left out: the runtime's.")
    code: str = Field(
        ".",
        description=(
            "Folder with the entrypoint's module, relative to the spec file; what git does not "
            "ignore of it travels to the cluster. An absolute path is a folder of the image."
        ),
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Of everything random.")
    workers: Annotated[
        Workers, BeforeValidator(_count_alone, json_schema_input_type=Workers | int)
    ] = Workers()
    queue: Queue | None = None
    limits: Limits | None = Field(None, validate_default=True)
    data: dict[str, Dataset] = Field(default_factory=dict)
    data_workers: Annotated[
        DataWorkers | None,
        BeforeValidator(_count_alone, json_schema_input_type=DataWorkers | int | None),
    ] = None
    cache: Cache | None = None
    evaluate: Evaluate = Evaluate()
    store: Store = Store()
    checkpoint: Checkpoint = Checkpoint()
    init_from: InitFrom | None = None
    tracking: Tracking = Tracking()
    env: dict[Annotated[str, Field(pattern=_VARIABLE)], str] = Field(
        default_factory=dict, description="Plain environment variables of the user's code."
    )
    params: dict[str, JsonValue] = Field(
        default_factory=dict, description="The user's own hyperparameters: ctx.params."
    )

    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    @field_validator("entrypoint")
    @classmethod
    def _one_way_to_train(cls, entrypoint: str | None, info: ValidationInfo) -> str | None:
        command = info.data.get("command")
        if entrypoint is None and "command" in info.data and command is None:
            raise PydanticKnownError("missing")
        if entrypoint is not None and command is not None:
            raise ValueError("name what trains by exactly one of entrypoint and command")
        return entrypoint

    @field_validator("limits")
    @classmethod
    def _limits_of_a_function(cls, limits: Limits | None, info: ValidationInfo) -> Limits | None:
        if limits is None and info.data.get("command", ()) is None:
            raise PydanticKnownError("missing")
        return limits

    @field_validator("init_from")
    @classmethod
    def _state_of_a_function(
        cls, init_from: InitFrom | None, info: ValidationInfo
    ) -> InitFrom | None:
        if init_from is not None and info.data.get("command") is not None:
            raise ValueError("a command restores its own state: remove init_from")
        return init_from

    @field_validator("data_workers")
    @classmethod
    def _something_to_carry(
        cls, data_workers: DataWorkers | None, info: ValidationInfo
    ) -> DataWorkers | None:
        data: Mapping[str, Dataset] | None = info.data.get("data")
        carried = data is None or any(dataset.map for dataset in data.values())
        if data_workers is not None and not carried:
            raise ValueError(
                "no data set has map, so there is nothing for data workers to do: ranks read "
                "plain rows themselves; remove data_workers, or say map"
            )
        return data_workers

    @classmethod
    def from_dict(
        cls,
        values: Mapping[str, Any],
        *,
        folder: Path,
        source: str,
        lines: Mapping[tuple[str, ...], int] | None = None,
    ) -> Job:
        """
        Validate plain values.

        Args:
            values: As a TOML or JSON reader gives them.
            folder: What relative paths in them refer to.
            source: Names the values in errors.
            lines: Where the keys stand in a file, if they come from one.

        Raises:
            SpecError: With all problems.
        """
        try:
            job = cls.model_validate(values).at(folder)
        except ValidationError as error:
            raise SpecError(source, problems_of(error, cls, lines or {})) from None
        if problems := sharing_problems(job, lines or {}):
            raise SpecError(source, problems)
        return job

    @property
    def module(self) -> str:
        """The module that training begins with: the entrypoint's, or the command's script."""
        if self.command is None:
            return (self.entrypoint or "").partition(":")[0]
        for before, argument in pairwise(("", *self.command)):
            if before == "-m":
                return argument
            if argument.endswith(".py"):
                return ".".join(Path(argument).with_suffix("").parts)
        return self.command[0]

    @property
    def usable_workers(self) -> tuple[int, ...]:
        """
        The numbers of worker pods that this job can be trained with, ascending.

        The last is all of them, and the only one unless ``workers`` says min and max.
        """
        workers = self.workers
        if not workers.is_elastic:
            return (workers.count,)
        batch_size = self.data["train"].batch_size if "train" in self.data else 1
        return usable_counts(workers.fewest, workers.count, batch_size=batch_size)

    @property
    def data_parts(self) -> dict[str, DataPart]:
        """What the data sets are made of, by the names that versions are recorded under."""
        return {
            part_name: part
            for name, dataset in self.data.items()
            for part_name, part in dataset.named_parts(name).items()
        }

    @property
    def folder(self) -> Path:
        """The folder that relative paths of this job refer to."""
        return self._folder

    def at(self, folder: Path) -> Job:
        """The same job with its relative paths referring to ``folder``."""
        copy = self.model_copy()
        copy._folder = folder.resolve()
        return copy

    def path(self, value: str) -> str:
        """A path or URI of this job made absolute; URIs with a scheme stay as they are."""
        return value if "://" in value else str((self.folder / value).resolve())

    def replace(self, **changes: Any) -> Job:
        """
        A validated copy with some keys changed.

        Args:
            changes: Top-level keys. A dictionary changes the keys it names and keeps the rest
                of its section, so ``job.replace(limits={"epochs": 3}, workers=8)`` leaves
                ``max_steps`` and ``workers.cpus`` alone.

        Raises:
            SpecError: If the result is not a valid job.
        """
        # Not to_dict, which says defaults aloud: whether code was said decides what may travel.
        said = self.model_dump(mode="json", exclude_none=True, exclude_unset=True)
        values = merged(said, without_shorthand(changes))
        return Job.from_dict(values, folder=self.folder, source=f"{self.name}.replace")

    def to_dict(self) -> dict[str, Any]:
        """The job as plain JSON values, without keys that are not set."""
        return self.model_dump(mode="json", exclude_none=True)
