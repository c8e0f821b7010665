"""YAML that every reader understands the same way."""

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from footplate.render import to_yaml

AMBIGUOUS = [
    "1e-5", "1E5", "yes", "No", "on", "OFF", "y", "n", "true", "null", "~", "", "0123", "0o17",
    "0x1F", "1_000", "1:30", ".inf", "NaN", "2026-11-29", "1.0", "-", "=", "<<", "#a", " a", "a ",
    "a: b", "a #b", "@a", "`a`", "%a", "&a", "*a", "!a", "[a]", "{a}", "'", '"', "\\", "\ta",
]  # fmt: skip

texts = st.text(st.characters(exclude_categories=["Cs"]))
objects = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_text_that_some_reader_takes_for_something_else_is_quoted(text: str) -> None:
    """Environment values and labels stay text in Kubernetes' reader, not only in Python's."""
    for written in (to_yaml([{"label": text}]), to_yaml([{text: 1}])):
        assert '"' in written
    assert list(yaml.safe_load_all(to_yaml([{"label": text}]))) == [{"label": text}]


@pytest.mark.parametrize("text", ["RayJob", "ray.io/v1", "/etc/footplate", "torch@1", "a-b_c"])
def test_plain_words_stay_plain(text: str) -> None:
    """The objects stay readable."""
    assert to_yaml([{"kind": text}]) == f"---\nkind: {text}\n"


def test_values_of_variables_are_always_quoted() -> None:
    """Nobody has to know which words YAML takes for something else."""
    assert to_yaml([{"env": [{"name": "A", "value": "plain"}]}]) == (
        '---\nenv:\n- name: A\n  value: "plain"\n'
    )


def test_text_of_several_lines_is_a_block() -> None:
    """The JSON inside the ConfigMap can be read."""
    assert to_yaml([{"data": {"job.json": '{\n  "a": 1\n}\n'}}]) == (
        '---\ndata:\n  job.json: |\n    {\n      "a": 1\n    }\n'
    )


def test_equal_parts_are_written_out() -> None:
    """No anchors and aliases: every object can be read and cut out by itself."""
    part = {"cpu": "2"}
    assert to_yaml([{"requests": part, "limits": part}]).count('cpu: "2"') == 2


def test_long_lines_are_not_folded() -> None:
    """A line of the output is a line of the value."""
    text = "word " * 100
    assert f'"{text}"' in to_yaml([{"a": text}])


@given(st.dictionaries(texts, objects, max_size=4))
@example({"": "\n\x85"})
@example({"": "\n\r\u2028\u2029"})
def test_whatever_is_written_is_read_back_the_same(value: dict[str, Any]) -> None:
    """No value is altered by being printed."""
    assert list(yaml.safe_load_all(to_yaml([value]))) == [value]
