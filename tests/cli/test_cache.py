"""``s2sim cache``: what the store has, and how it is emptied."""


def test_the_store_is_counted_and_emptied(s2sim, monkeypatch, tmp_path):
    monkeypatch.setenv("S2SIM_CACHE", str(tmp_path))
    s2sim("run", "--topology", "leaf-spine", "--workers", 2, "--reducer", "union", "--no-break-even", "-q")
    assert f"{tmp_path}: 2 recordings, " in s2sim("cache")[1]
    assert "2 recordings removed" in s2sim("cache", "--empty")[1]
    assert "0 recordings" in s2sim("cache")[1]


def test_no_store_is_said(s2sim, monkeypatch):
    monkeypatch.setenv("S2SIM_CACHE", "off")
    assert s2sim("cache") == (0, "No store: S2SIM_CACHE is off.\n", "")
