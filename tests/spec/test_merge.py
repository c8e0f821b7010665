"""Overrides and differences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from footplate.errors import SpecError
from footplate.spec import changed_keys, merged, parse_override

TABLES = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
).filter(lambda value: isinstance(value, dict))


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("seed=3", {"seed": 3}),
        ("workers.count = 1", {"workers": {"count": 1}}),
        ("params.lr=1e-3", {"params": {"lr": 1e-3}}),
        ("name=digits", {"name": "digits"}),
        ('name="a=b"', {"name": "a=b"}),
        ("store.uri=s3://bucket/a=b", {"store": {"uri": "s3://bucket/a=b"}}),
        ('data.train.columns=["x", "y"]', {"data": {"train": {"columns": ["x", "y"]}}}),
        ("data.train.shuffle=false", {"data": {"train": {"shuffle": False}}}),
        ("workers={count=2}", {"workers": {"count": 2}}),
        ("env.EMPTY=", {"env": {"EMPTY": ""}}),
    ],
)
def test_an_override_is_read_as_toml_or_taken_as_text(text: str, table: object) -> None:
    """On the command line quotes are optional, and numbers stay numbers."""
    assert parse_override(text) == table


@pytest.mark.parametrize("text", ["", "seed", "=3", "workers.=1", ".count=1"])
def test_an_override_without_key_or_value_is_refused(text: str) -> None:
    """A slip of --set is named as such."""
    with pytest.raises(SpecError, match="not of the form key=value"):
        parse_override(text)


@given(TABLES, TABLES)
def test_merging_applies_every_change_and_keeps_the_rest(
    old: dict[str, object], changes: dict[str, object]
) -> None:
    """Changes win, twice is as good as once, and neither argument is altered."""
    before = repr((old, changes))
    new = merged(old, changes)
    assert merged(new, changes) == new
    assert new.keys() == old.keys() | changes.keys()
    assert repr((old, changes)) == before


@given(TABLES)
def test_nothing_differs_from_itself(table: dict[str, object]) -> None:
    """Equal tables have no changed keys."""
    assert changed_keys(table, table) == {}


def test_differences_have_dotted_keys_and_both_values() -> None:
    """A changed spec can be explained key by key."""
    old = {"seed": 0, "workers": {"count": 2, "gpus": 0}, "image": "a"}
    new = {"seed": 1, "workers": {"count": 2, "gpus": 8}, "queue": {"name": "q"}}
    assert changed_keys(old, new) == {
        "image": ("a", None),
        "queue": (None, {"name": "q"}),
        "seed": (0, 1),
        "workers.gpus": (0, 8),
    }
