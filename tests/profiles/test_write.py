"""A profile that is written loads again as it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import S2SimError
from s2sim.profiles.profile import ComputeProfile, TensorTiming
from s2sim.profiles.read import load_profile, profile_text

WORDS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(lambda text: bool(text.strip()))
TIMES_PS = st.integers(0, 10**15)


@st.composite
def profiles(draw):
    names = draw(st.lists(WORDS, min_size=1, max_size=4, unique=True))
    shapes = st.lists(st.integers(1, 5000), min_size=1, max_size=4).map(tuple)
    tensors = tuple(
        TensorTiming(name, draw(shapes), draw(st.booleans()), draw(TIMES_PS), draw(TIMES_PS)) for name in names
    )
    return ComputeProfile(
        name="written",
        model=draw(WORDS.map(lambda text: f"my {text.replace('/', ' ')}!")),
        gpu=draw(WORDS),
        batch=draw(st.integers(1, 10**6)),
        sample=draw(WORDS),
        tensors=tensors,
        optimizer_ps=draw(TIMES_PS),
        memory_bound=draw(st.floats(0, 1)),
        kind="measured",
        source=draw(WORDS),
    )


@given(profile=profiles())
def test_what_is_written_loads_again_equal(tmp_path_factory, profile):
    path = tmp_path_factory.mktemp("profile") / "written.toml"
    text = profile_text(profile, description="by a test", batch_source="stated", memory_bound_source="guessed")
    path.write_text(text, encoding="utf-8", newline="\n")
    assert load_profile(str(path)) == profile


def test_times_of_what_is_no_gpu_stay_where_they_were_measured(tmp_path):
    profile = ComputeProfile(
        "mine", "my own", "CPU", 1, "s", (TensorTiming("a", (1,), False, 3, 4),), 0, 0.0, "measured", "t"
    )
    path = tmp_path / "mine.toml"
    path.write_text(profile_text(profile, description="d", batch_source="b", memory_bound_source="m"))
    assert load_profile(str(path)) == profile
    moved = load_profile(str(path), gpu="a100")
    assert (moved.tensors, moved.gpu) == (profile.tensors, "CPU")
    assert "no GPU of the catalogue: not scaled to a100" in moved.source
    with pytest.raises(S2SimError, match="fp32 on CPU say nothing of bf16"):
        load_profile(f"{path}:precision=bf16", gpu="a100")


def test_a_model_that_a_reader_would_take_for_a_path_is_refused():
    profile = ComputeProfile(
        "p", "my/model", "g", 1, "s", (TensorTiming("a", (1,), False, 0, 0),), 0, 0.0, "measured", "t"
    )
    with pytest.raises(S2SimError, match="is a path"):
        profile_text(profile, description="d", batch_source="b", memory_bound_source="m")
