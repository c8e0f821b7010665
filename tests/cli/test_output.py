"""How commands print."""

import json

import pytest

from footplate.cli._output import print_json, print_note, print_table


def test_tables_show_every_cell_whole_and_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A path may be folded over lines, never cut; brackets are not markup."""
    path = "s3://bucket/" + "x" * 200
    print_table(["name", "where"], [["a[0] :smile: [bold]", path], ["b", 3]])
    out = capsys.readouterr().out
    assert "a[0] :smile: [bold]" in out
    assert out.count("x") == 200
    assert "\x1b" not in out


def test_results_and_notes_go_different_ways(capsys: pytest.CaptureFixture[str]) -> None:
    """A script that reads the output never reads a note."""
    print_json({"a": "ü"})
    print_note("by the way")
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"a": "ü"}
    assert captured.err == "note: by the way\n"
