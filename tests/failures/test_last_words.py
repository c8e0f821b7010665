"""Whose doing the end of a script was, by the last that it printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from footplate.failures import is_own_mistake, is_worker_loss

# What a script with a TorchTrainer of two ranks printed, Ray 2.60.
_SCRIPTS = Path(__file__).parent / "scripts"
_CASES = Path(__file__).parents[2].parent / "shared" / "cases"


def _printed(script: str) -> list[str]:
    return (_SCRIPTS / f"{script}.txt").read_text(encoding="utf-8").splitlines()


def _case(number: str) -> list[str]:
    text: str = json.loads((_CASES / f"{number}.json").read_text(encoding="utf-8"))["text"]
    return text.splitlines()


@pytest.mark.parametrize(
    "script", ["rank-killed", "rank-killed-in-backward", "rank-exited", "task-killed"]
)
def test_a_process_that_ray_has_lost_is_not_the_scripts_doing(script: str) -> None:
    """Its peers only say that the connection is closed."""
    assert is_worker_loss(_printed(script))
    assert not is_own_mistake(_printed(script))


@pytest.mark.parametrize("script", ["rank-raised", "misspelt"])
def test_an_error_of_its_own_is(script: str) -> None:
    """Also where a rank has raised it, and its peers have lost the connection for that."""
    assert not is_worker_loss(_printed(script))


def test_what_other_processes_print_meanwhile_is_no_error_of_the_script() -> None:
    """Ray tells of every process that has died, also of those that died for the failure."""
    told = [line for line in _printed("task-killed") if "(raylet)" in line]
    assert told
    assert not is_worker_loss([*_printed("rank-raised"), *told])
    assert is_own_mistake([*_printed("misspelt"), *told])


def test_one_rank_with_an_error_of_its_own_is_enough() -> None:
    """A process may have been killed because another one failed."""
    killed, raised = _printed("rank-killed"), _printed("rank-raised")
    begin = next(number for number, line in enumerate(raised) if "Error Snippet]" in line)
    assert not is_worker_loss([*killed, *raised[begin:]])
    assert not is_worker_loss([*raised, *raised[begin:]])


def test_what_a_script_has_overcome_is_not_how_it_ended() -> None:
    """The loss was printed, and then something else was the end."""
    assert not is_worker_loss([*_printed("task-killed"), *_printed("misspelt")])
    assert not is_worker_loss([])


@pytest.mark.parametrize("case", ["024", "037", "038", "051", "099"])
def test_ray_says_that_a_process_was_lost(case: str) -> None:
    """A process or a node that died, and Ray's memory monitor in its old and its new words."""
    assert is_worker_loss(_case(case))


@pytest.mark.parametrize("case", ["054"])
def test_a_process_that_the_script_has_ended_is_not_lost(case: str) -> None:
    """Ray tells apart who wanted its end."""
    assert not is_worker_loss(_case(case))


def test_a_mistake_in_the_program_is_known_at_once() -> None:
    """What Python finds in the text of the program no loss of a machine can bring about."""
    assert is_own_mistake(_printed("misspelt"))
    assert is_own_mistake(["  File 'own.py', line 1", "    x = = 1", "SyntaxError: invalid syntax"])


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["KeyError: 'loss'"],
        ["NameError is what it says"],
        ["ray.exceptions.WorkerCrashedError: gone", "NameError: name 'log' is not defined"],
        ["During handling of the above exception, another", "NameError: name 'x' is not defined"],
        ["NameError: name 'x' is not defined", "and more"],
    ],
)
def test_what_may_have_come_of_a_loss_is_not_certain(lines: list[str]) -> None:
    """An answer that never came, and the handling of it, raise errors of all kinds."""
    assert not is_own_mistake(lines)
