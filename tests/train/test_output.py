"""Printed lines say which rank they are from."""

from __future__ import annotations

import pytest

from footplate.train.output import labelled_output


def test_every_line_has_its_label(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines made of several writes, several lines in one, and a last one without an end."""
    with labelled_output(3):
        print("a", 1)
        print("b\nc")
        print("d", end="")
        print("e", end="")
    print("afterwards")
    assert capsys.readouterr().out == (
        "[rank 3] a 1\n[rank 3] b\n[rank 3] c\n[rank 3] de\nafterwards\n"
    )


def test_the_end_is_told_also_after_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """What was printed right before a failure is often what explains it."""

    def fail() -> None:
        print("last words", end="")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), labelled_output(0):
        fail()
    assert capsys.readouterr().out == "[rank 0] last words\n"
