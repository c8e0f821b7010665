"""
Every error that Footplate raises.

A base for each question a caller asks, drawn once::

    FootplateError                 anything below
    ├── SpecError                  is the file wrong?           all its problems at once
    ├── MissingExtraError          is something not installed?  names the pip line
    ├── RunBusyError               does another process hold this run?
    ├── RunNotFoundError           is there no such run?
    ├── RunExistsError             is another run of that name in the cluster?
    ├── WaitTimeoutError           did it take longer than the caller would wait?
    ├── RuntimeNotFoundError       is there no such runtime template?
    ├── TrainingError              did the training itself fail?
    │   ├── UserCodeError          in the code of the user
    │   ├── NonFiniteLossError     by a loss that is not a finite number
    │   ├── WorkerLostError        because a process vanished
    │   │   ├── PreemptedError     with notice: its node was taken away
    │   │   └── StartupError       before it began: the workers did not come together
    │   └── FencedError            because a newer attempt has taken over
    ├── DataError                  is the data missing, changed or malformed?
    ├── CheckpointError            can a checkpoint not be written or read?
    │   ├── CheckpointDamagedError it is not what was written
    │   └── CheckpointGoneError    it was removed after it had been chosen
    ├── StoreError                 did the object store fail?
    │   ├── StoreFullError         no space left
    │   ├── ObjectExistsError      create-if-absent found the object there
    │   └── ObjectNotFoundError    the object is not there
    ├── ClusterError               did Kubernetes fail or refuse?
    │   ├── ClusterUnreachableError  no answer
    │   ├── AccessDeniedError        not allowed, or not known who asks
    │   ├── RejectedError            the object is wrong, says the server or a webhook
    │   ├── ObjectMissingError       the object is not there
    │   └── ObjectConflictError      it is there already, or has changed meanwhile
    └── TrackingError              did MLflow fail?

Every class carries the exit code a script can branch on and the category of the failure.
All of them survive a pickle, because they travel from ranks to the driver: the arguments of
the constructor are kept as ``args`` and the message is derived from them.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

__all__ = [
    "AccessDeniedError",
    "CheckpointDamagedError",
    "CheckpointError",
    "CheckpointGoneError",
    "ClusterError",
    "ClusterUnreachableError",
    "DataError",
    "FencedError",
    "FootplateError",
    "MissingExtraError",
    "NonFiniteLossError",
    "ObjectConflictError",
    "ObjectExistsError",
    "ObjectMissingError",
    "ObjectNotFoundError",
    "PreemptedError",
    "Problem",
    "RejectedError",
    "RunBusyError",
    "RunExistsError",
    "RunNotFoundError",
    "RuntimeNotFoundError",
    "SpecError",
    "StartupError",
    "StoreError",
    "StoreFullError",
    "TrackingError",
    "TrainingError",
    "UserCodeError",
    "WaitTimeoutError",
    "WorkerLostError",
]


class FootplateError(Exception):
    """
    Base of all errors of this package.

    Args:
        message: What happened, with the values that matter.
        hint: The likely cause and the next command or key to change; may be empty.
    """

    exit_code: ClassVar[int] = 1
    category: ClassVar[str] = "unknown"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class Problem(NamedTuple):
    """One thing wrong with a spec: where (a dotted key, perhaps a line) and what."""

    where: str
    what: str
    line: int | None = None

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line is not None else ""
        return f"{place}{self.where}: {self.what}" if self.where else f"{place}{self.what}"


class SpecError(FootplateError):
    """
    A spec that cannot be run, with all of its problems.

    Args:
        source: The file, or another name for where the spec came from.
        problems: Everything found wrong, in the order of the file.
    """

    exit_code = 2
    category = "spec_invalid"

    def __init__(self, source: str, problems: tuple[Problem, ...]) -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{source}: {count}\n{lines}")
        self.args = (source, problems)
        self.source = source
        self.problems = problems


class MissingExtraError(FootplateError):
    """Packages of an extra are not installed; names the line that installs them."""

    exit_code = 3
    category = "secret_or_config_missing"

    def __init__(self, extra: str, modules: tuple[str, ...]) -> None:
        super().__init__(
            f"not installed: {', '.join(modules)}",
            f"Install what trains with: pip install 'footplate[{extra}]'",
        )
        self.args = (extra, modules)
        self.extra = extra
        self.modules = modules


class RunBusyError(FootplateError):
    """Another process is working on this run."""

    exit_code = 4


class RunNotFoundError(FootplateError):
    """No run of that name is in the store."""

    exit_code = 5


class RunExistsError(FootplateError):
    """A run of that name is in the cluster, and it is not the one that was asked for."""

    exit_code = 6


class WaitTimeoutError(FootplateError):
    """The run has not ended within the time that the caller would wait; it goes on."""

    exit_code = 124


class RuntimeNotFoundError(FootplateError):
    """No runtime template of that name and version is installed."""

    exit_code = 2
    category = "spec_invalid"


class TrainingError(FootplateError):
    """Training started and did not end well."""

    exit_code = 10


class UserCodeError(TrainingError):
    """
    The user's own code raised, or could not be imported.

    Args:
        message: Which rank, at which step, and the error as Python prints it.
        hint: What to do next.
        trace: The traceback, the user's frames last.
    """

    exit_code = 10
    category = "user_code"

    def __init__(self, message: str, hint: str = "", trace: str = "") -> None:
        super().__init__(message, hint)
        self.args = (message, hint, trace)
        self.trace = trace


class NonFiniteLossError(TrainingError):
    """The ``loss`` given to ``step`` was NaN or infinite."""

    exit_code = 11
    category = "nan_loss"


class DataError(FootplateError):
    """A data set is missing, incomplete, changed, or not of the declared form."""

    exit_code = 12
    category = "data_corruption"


class StoreError(FootplateError):
    """The object store failed or refused."""

    exit_code = 13
    category = "storage_access_denied"


class StoreFullError(StoreError):
    """No space is left where the store writes."""

    category = "disk_full"


class ObjectExistsError(StoreError):
    """Create-if-absent found the object already there."""


class ObjectNotFoundError(StoreError):
    """The object is not in the store."""


class CheckpointError(FootplateError):
    """A checkpoint cannot be written, verified or restored."""

    exit_code = 14
    category = "checkpoint_corrupted"


class CheckpointDamagedError(CheckpointError):
    """
    What is stored is not what was written: bytes changed, or are missing.

    Trying again is of no use, and nobody's code is at fault: the checkpoint before is the next.
    """

    category = "checkpoint_damaged"


class CheckpointGoneError(CheckpointError):
    """
    What an attempt was to go on from has been removed since, all of it or a file.

    That is the doing of an older attempt which still lived for some seconds: the next attempt
    chooses among what is there then.
    """

    category = "control_plane_transient"


class ClusterError(FootplateError):
    """Kubernetes failed or refused."""

    exit_code = 18
    category = "control_plane_transient"


class ClusterUnreachableError(ClusterError):
    """The API server does not answer, or there is no configuration that says where it is."""


class AccessDeniedError(ClusterError):
    """The API server does not know who asks, or does not allow it."""

    category = "k8s_api_denied"


class RejectedError(ClusterError):
    """The API server or an admission webhook takes the object for wrong."""

    exit_code = 2
    category = "spec_invalid"


class ObjectMissingError(ClusterError):
    """The object is not in the cluster."""


class ObjectConflictError(ClusterError):
    """The object is there already, or has changed since it was read."""


class TrackingError(FootplateError):
    """MLflow cannot be reached or refused; training never ends for it."""

    exit_code = 15
    category = "tracking_outage"


class WorkerLostError(TrainingError):
    """A process of the run vanished without an error of its own."""

    exit_code = 16
    category = "process_killed_unknown"


class PreemptedError(WorkerLostError):
    """Nodes of the run were taken away, and that had been announced."""

    category = "preemption"


class StartupError(WorkerLostError):
    """The worker group did not start."""

    category = "rendezvous_timeout"


class FencedError(TrainingError):
    """A newer attempt has claimed the run; this one may publish nothing more."""

    exit_code = 17
    category = "terminated_external"
