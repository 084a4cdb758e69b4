"""What profiles give is near what others published for the same GPU and precision."""

import re
from pathlib import Path

import pytest

from s2sim.gradients.models import load_model
from s2sim.profiles.compute import computed_profile
from s2sim.profiles.read import load_profile
from s2sim.topology.hardware import load_gpu


def per_s(profile):
    return profile.batch * 1e12 / (profile.forward_ps + profile.backward_ps + profile.optimizer_ps)


# github.com/NVIDIA/DeepLearningExamples, one GPU, in FP32 and mixed precision:
# PyTorch/Classification/ConvNets/resnet50v1.5 (V100 of 16 and 32 GB), PyTorch/LanguageModeling/BERT (7 or 14 sequences
# of 384 on a V100 of 32 GB, DGX-1 and DGX-2) and PyTorch/Translation/GNMT (V100, 128 pairs, words of both languages).
@pytest.mark.parametrize(
    ("name", "batch", "items", "published", "within"),
    [
        ("resnet-50", 128, 1, 367, 0.15),
        ("resnet-50", 128, 1, 356, 0.15),
        ("bert-large", 7, 512, 7.56 * 384, 0.2),
        ("bert-large", 7, 512, 8.47 * 384, 0.2),
        ("gnmt-8", 128, 54, 21_424, 0.05),
        ("resnet-50:precision=fp16", 256, 1, 1200, 0.25),
        ("bert-large:precision=fp16", 14, 512, 26.04 * 384, 0.25),
        ("bert-large:precision=fp16", 14, 512, 28.28 * 384, 0.25),
        ("gnmt-8:precision=fp16", 128, 54, 68_312, 0.15),
    ],
)
def test_throughput_of_a_v100(name, batch, items, published, within):
    assert items * per_s(load_profile(name, gpu="v100", batch=batch)) == pytest.approx(published, rel=within)


# The same, A100 of 80 GB.
@pytest.mark.parametrize(("precision", "published"), [("tf32", 938), ("fp16", 2470)])
def test_throughput_of_an_a100(precision, published):
    profile = load_profile(f"resnet-50:precision={precision}", gpu="a100-80gb", batch=256)
    assert per_s(profile) == pytest.approx(published, rel=0.25)


# Llama 2, arXiv:2307.09288, table 2: GPU hours of A100 80 GB for 2.0T tokens, in which they communicate too.
@pytest.mark.parametrize(("name", "gpu_hours"), [("llama-7b", 184_320), ("llama-70b", 1_720_320)])
def test_a_gpu_computes_more_than_it_does_with_communication(name, gpu_hours):
    published = 2e12 / (gpu_hours * 3600)
    assert 1 < 4096 * per_s(load_profile(name)) / published < 1.25


# The timer of the S2 authors, GNMT/seq2seq/train/timer_summary.json: 64 pairs, on a card that it does not name.
def test_gnmt_takes_what_its_authors_timed():
    profile = load_profile("gnmt-8")
    assert profile.batch == 64
    assert profile.forward_ps == pytest.approx(52.13e9, rel=0.15)
    assert profile.backward_ps == pytest.approx(96.98e9, rel=0.15)


@pytest.mark.parametrize("name", ["resnet-50", "resnet-101", "gpt2"])
def test_operations_give_what_is_measured_at_one_efficiency(name):
    measured = load_profile(name)
    computed = computed_profile(load_model(name), load_gpu("v100"), measured.batch, efficiency=0.8)
    assert computed.backward_ps == pytest.approx(measured.backward_ps, rel=0.12)
    # And layer by layer: half of the bytes are ready at about the same share of backward.
    assert half_ready(computed) == pytest.approx(half_ready(measured), abs=0.1)


def half_ready(profile):
    """Return the share of backward after which half of the bytes are ready."""
    ready_ps = size = 0
    for tensor in profile.tensors:
        ready_ps += tensor.backward_ps
        size += tensor.size
        if 2 * size >= profile.parameters:
            break
    return ready_ps / profile.backward_ps


PAGE = Path(__file__).parents[2] / "docs" / "profiles.md"


def test_the_page_says_what_profiles_give():
    llamas = [round(4096 * per_s(load_profile(name))) for name in ("llama-7b", "llama-70b")]
    rates = [
        per_s(load_profile(f"resnet-50:precision={precision}", gpu=gpu, batch=128))
        for precision, gpu in (("fp16", "v100"), ("fp16", "a100-80gb"), ("tf32", "a100-80gb"))
    ]
    gnmt = load_profile("gnmt-8")
    for text in (
        f"| {per_s(load_profile('resnet-50')):.0f} images/s |",
        f"| {rates[0]:.0f} and {rates[1]:,.0f} images/s |",
        f"| {rates[2]:,.0f} images/s |",
        f"| {round(512 * per_s(load_profile('bert-large')), -1):,.0f} tokens/s |",
        f"| {54 * per_s(load_profile('gnmt-8', batch=128)):,.0f} words/s |",
        f"| {gnmt.forward_ps / 1e9:.0f} and {gnmt.backward_ps / 1e9:.0f} ms |",
        f"| {llamas[0]:,} and {llamas[1]} tokens/s |",
    ):
        assert text in PAGE.read_text("utf-8"), text


def test_the_profile_on_the_page_is_one(tmp_path):
    path = tmp_path / "mine.toml"
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    path.write_text(text)
    profile = load_profile(str(path))
    assert (profile.forward_ps, profile.backward_ps) == (480 * 10**6, 1060 * 10**6)
    assert profile.parameters == 1000 * 512 + 512 * 512
