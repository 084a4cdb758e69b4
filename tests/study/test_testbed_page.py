"""docs/testbed.md says what the shipped measurements make of it."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_page_is_true():
    """The page is what the script makes, and errors are within what was promised: they could be worse."""
    spec = importlib.util.spec_from_file_location("make_testbed", ROOT / "docs" / "make_testbed.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    result = module.shipped()
    assert (ROOT / "docs" / "testbed.md").read_text("utf-8") == module.page(result), "run python docs/make_testbed.py"
    errors = result.to_json()["median_errors"]
    assert errors["collectives large"] <= 0.10
    assert errors["collectives small"] <= 0.25
