import pytest

from s2sim import provenance
from s2sim.errors import OptionError
from s2sim.experiment.scenario import reducers as scenario
from s2sim.experiment.scenario.reducers import check_ranks
from s2sim.gradients.gradient import RowSparse
from s2sim.gradients.synthetic import load_trace
from s2sim.provenance import memory_bytes

SYNTHETIC = "synthetic:density=0.1,rows=1000,width=8,dense=100,layers=2"


def test_this_machine_tells_how_much_memory_it_has():
    assert memory_bytes() is None or memory_bytes() > 2**28


def test_a_group_of_processes_may_have_less(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "_CGROUP_FILES", tmp_path / "memory.max")
    alone = memory_bytes()
    (tmp_path / "memory.max").write_text("12345\n")
    assert memory_bytes() == 12345
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_bytes() == alone


def test_what_is_drawn_takes_what_was_estimated():
    trace = load_trace(SYNTHETIC, workers=2)
    layers = trace.gradient(0, 1).layers
    held = sum(each.rows.nbytes + each.values.nbytes if isinstance(each, RowSparse) else each.nbytes for each in layers)
    assert trace.options.held_bytes == held


@pytest.mark.parametrize(("name", "least"), [(SYNTHETIC, 8_000), ("cnn", 150_000), ("lstm-lm", 200_000)])
def test_gradients_that_do_not_fit_are_refused(name, least, monkeypatch):
    trace = load_trace(name, workers=2)
    monkeypatch.setattr(scenario, "memory_bytes", lambda: 2 * least)
    with pytest.raises(OptionError, match=r"--workers 2: the gradients of .* take about .* of memory"):
        check_ranks(2, trace)
    monkeypatch.setattr(scenario, "memory_bytes", lambda: 4 * least)
    check_ranks(2, trace)
    monkeypatch.setattr(scenario, "memory_bytes", lambda: None)
    check_ranks(2, trace)


def test_drawn_ranks_share_the_dense_layers_of_recorded_ones(monkeypatch):
    recorded, drawn = load_trace("ncf", workers=64), load_trace("ncf", workers=65)
    dense = sum(each.nbytes for each in recorded.gradient(0, 0).layers if not isinstance(each, RowSparse))
    held = sum(
        each.rows.nbytes + each.values.nbytes for each in recorded.gradient(0, 0).layers if isinstance(each, RowSparse)
    )
    monkeypatch.setattr(scenario, "memory_bytes", lambda: 65 * held)
    check_ranks(65, drawn)
    with pytest.raises(OptionError):
        check_ranks(65, recorded)
    assert dense


def test_more_ranks_than_can_be_run_are_refused():
    with pytest.raises(OptionError, match=r"at most 131072 are run: ask for fewer, or time one collective"):
        check_ranks(2**17 + 1, load_trace(SYNTHETIC, workers=2))
