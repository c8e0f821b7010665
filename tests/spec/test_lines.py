"""Line numbers of keys in TOML."""

from footplate.spec.lines import key_lines, line_of

TEXT = '''\
# A comment with name = "x"
name = "a"

[workers]  # a table
count = 2
limits.epochs = 3
"quoted key" = 1

[data.train]
text = """
count = 99
"""
after = 1
'''


def test_finds_tables_keys_and_dotted_keys() -> None:
    """Every header and assignment has its line, comments and texts have none."""
    assert key_lines(TEXT) == {
        ("name",): 2,
        ("workers",): 4,
        ("workers", "count"): 5,
        ("workers", "limits", "epochs"): 6,
        ("workers", "quoted key"): 7,
        ("data", "train"): 9,
        ("data", "train", "text"): 10,
        ("data", "train", "after"): 13,
    }


def test_a_key_without_a_line_has_that_of_its_table() -> None:
    """A missing key is reported where it should have been."""
    lines = key_lines(TEXT)
    assert line_of(lines, ("data", "train", "batch_size")) == 9
    assert line_of(lines, ("store", "uri")) is None


def test_a_table_without_a_header_begins_with_its_first_key() -> None:
    """A problem of a whole section has a line however the section is written."""
    lines = key_lines("seed = 1\nlimits.max_steps = 2\nlimits.epochs = 3\n")
    assert line_of(lines, ("limits",)) == 2
