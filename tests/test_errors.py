"""Every error: what it carries, and that it arrives whole in another process."""

from __future__ import annotations

import ast
import inspect
import pickle
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

from footplate import errors
from footplate.errors import FootplateError, Problem

_SOURCE = Path(__file__).parents[1] / "platform"
_MODULES = sorted(path for path in _SOURCE.glob("footplate/**/*.py") if path.name != "errors.py")

# The vocabulary of failures: what happened, as a script or a dashboard may branch on it.
_CATEGORIES = """
actor_died_unknown agent_failure benign_warning cancelled capacity_unavailable
checkpoint_corrupted checkpoint_damaged control_plane_transient cuda_driver_mismatch
data_corruption data_empty_shard data_layout data_schema deadline_exceeded disk_full dns fd_limit
gpu_device_lost_in_container gpu_hardware head_crash image_pull image_pull_transient
k8s_api_denied kueue_deactivated kueue_evicted_podsready kueue_inadmissible kueue_never_fits
kueue_preempting kueue_waiting_quota liveness_kill nan_loss nccl_network node_admission_rejected
node_loss node_loss_unconfirmed oom_cuda oom_host oom_ray pod_network_setup port_conflict
preemption process_killed_unknown process_limit ray_infeasible raylet_died rendezvous_timeout
resource_quota_exceeded runtime_env_setup scheduling_insufficient_resources scheduling_pvc
scheduling_taint_affinity secret_or_config_missing shm_bus_error spec_invalid
storage_access_denied storage_credentials_expired storage_mount_lost storage_throttled
submission_failed succeeded supervisor_start_timeout terminated_external tracking_outage
tracking_usage unknown user_code version_mismatch
"""

# A value for a constructor's parameter of each type. A new type needs a new line here.
_SAMPLES: dict[object, object] = {
    str: "rank 3 failed at step 12",
    int: 3,
    int | None: 3,
    str | None: "rank 3",
    tuple[str, ...]: ("ray", "torch"),
    tuple[Problem, ...]: (Problem("workers.count", "is required", 7), Problem("", "is not TOML")),
}


def _tree(base: type[FootplateError]) -> list[type[FootplateError]]:
    return [base, *(below for child in base.__subclasses__() for below in _tree(child))]


_ERRORS = sorted(set(_tree(FootplateError)), key=lambda error: error.__name__)


def _built(error: type[FootplateError], *, with_defaults: bool) -> FootplateError:
    """An instance, with values for all parameters or for the required ones alone."""
    types = typing.get_type_hints(error.__init__)
    arguments = {
        name: _SAMPLES[types[name]]
        for name, parameter in inspect.signature(error).parameters.items()
        if not with_defaults or parameter.default is parameter.empty
    }
    return error(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("with_defaults", [False, True])
@pytest.mark.parametrize("error", _ERRORS)
def test_survives_a_pickle(error: type[FootplateError], with_defaults: bool) -> None:
    """An error that a rank raises reaches the driver as it was: type, text and attributes."""
    raised = _built(error, with_defaults=with_defaults)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        received = pickle.loads(pickle.dumps(raised, protocol))  # noqa: S301
        assert type(received) is error
        assert str(received) == str(raised)
        assert received.args == raised.args
        assert vars(received) == vars(raised)


@pytest.mark.parametrize("error", _ERRORS)
def test_has_exit_code_and_category(error: type[FootplateError]) -> None:
    """A script can branch on how a command ended, in words that the documentation lists."""
    assert 1 <= error.exit_code < 126  # from 126 on the shell speaks
    assert error.category in _CATEGORIES.split()


@pytest.mark.parametrize("error", _ERRORS)
def test_is_public_and_drawn(error: type[FootplateError]) -> None:
    """The tree at the head of the module is the whole tree."""
    assert error.__name__ in errors.__all__
    assert f" {error.__name__} " in (errors.__doc__ or "")


def _is_error(base: ast.expr) -> bool:
    """Whether a class below this one is an error; a BaseException is a way out, and is not."""
    name = ast.unparse(base).rpartition(".")[2]
    return name != "BaseException" and name.endswith(("Error", "Exception"))


def _strays(tree: ast.Module) -> Iterator[str]:
    """Errors defined in a module, and errors raised in it that name no kind."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(map(_is_error, node.bases)):
            yield f"{node.lineno} defines {node.name}"
        elif isinstance(node, ast.Raise) and node.exc is not None:
            raised = ast.unparse(node.exc).partition("(")[0]
            if raised in {"BaseException", "Exception", "RuntimeError"}:
                yield f"{node.lineno} raises {raised}"


@pytest.mark.parametrize("path", _MODULES, ids=lambda path: str(path.relative_to(_SOURCE)))
def test_the_tree_is_in_one_module(path: Path) -> None:
    """No other module defines an error, and none raises one that says nothing."""
    strays = list(_strays(ast.parse(path.read_text(encoding="utf-8"))))
    assert not strays, "\n".join(strays)
