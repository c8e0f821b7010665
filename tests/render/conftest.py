"""The option that renews the golden files: ``pytest tests/render --update-golden``."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update-golden."""
    parser.addoption(
        "--update-golden", action="store_true", help="Write golden files instead of comparing."
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written."""
    # Without a default, because the option is unknown when pytest starts above this folder.
    return bool(request.config.getoption("--update-golden", default=False))
