"""Papers are judged on two bases of cost, and tests share their figures: each recording is made once a worker."""

import pytest


@pytest.fixture(autouse=True)
def recorded_once(monkeypatch, tmp_path_factory):
    """Give each test the store of its worker."""
    monkeypatch.setenv("S2SIM_CACHE", str(tmp_path_factory.getbasetemp() / "recordings"))
