"""Random programs are checked by their own test; a run makes too many of them to check each again after it."""

import pytest


@pytest.fixture(autouse=True)
def programs_read_back() -> None:
    """In place of the suite's fixture of this name."""
