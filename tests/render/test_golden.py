"""
What is rendered, compared with files a person has read.

``pytest tests/render --update-golden`` writes them anew; the difference is for review.
"""

from pathlib import Path

import pytest

from footplate.render import render, to_yaml
from footplate.runtimes import find_runtime
from footplate.spec import load

GOLDEN = Path(__file__).parent / "golden"
RECIPES = Path(__file__).resolve().parents[2] / "rayjobs"
SPECS = sorted([*GOLDEN.glob("*.toml"), *RECIPES.glob("*.toml")])


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_renders_what_was_reviewed(spec: Path, update_golden: bool) -> None:
    """No change of what reaches the cluster goes unseen."""
    job = load(spec)
    text = to_yaml(render(job, find_runtime(job.runtime)))
    golden = GOLDEN / f"{spec.stem}.yaml"
    if update_golden:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_there_is_no_golden_file_without_a_spec() -> None:
    """A spec that was renamed leaves nothing behind that looks tested."""
    assert {file.stem for file in GOLDEN.glob("*.yaml")} == {spec.stem for spec in SPECS}
