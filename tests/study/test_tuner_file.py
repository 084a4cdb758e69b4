"""The file for NCCL's tuner plug-in, read as the plug-in reads it."""

import pytest

import s2sim
from s2sim.cli.main import main
from s2sim.traffic.collective_run import plan_collective
from s2sim.traffic.size_sweep import NCCL_ALGORITHMS, write_tuner
from s2sim.traffic.spec import CollectiveSpec

COLLECTIVES = {"broadcast", "reduce", "allgather", "reducescatter", "allreduce"}
PROTOCOLS = {"ll", "ll128", "simple"}


def read_lines(text):
    """Yield lines as ``fgets`` with a buffer of 256 bytes does: at most 255 at once."""
    for line in text.encode().splitlines(keepends=True):
        yield from (line[at : at + 255].decode() for at in range(0, len(line), 255))


def read_tuner(text):
    """Return the rows that ``loadConfig`` of plugins/tuner/example/plugin.c keeps (NCCL v2.30.7-1)."""
    rows = []
    for line in read_lines(text):
        if line[0] in "#\n":
            continue
        tokens = [token.strip(" \t") for token in line.rstrip("\n").split(",") if token][:10]
        if len(tokens) >= 8:
            assert tokens[0] in COLLECTIVES
            assert tokens[3] in set(NCCL_ALGORITHMS.values())
            assert tokens[4] in PROTOCOLS
            rows.append((tokens[0], *map(int, tokens[1:3]), *tokens[3:5], *map(int, tokens[5:8])))
    return rows


def applied(rows, collective, size, nodes, ranks):
    """Return what ``pluginGetCollInfo`` asks for at a size: algorithm, protocol and channels of the first match."""
    matches = [row for row in rows if row[0] == collective and row[1] <= size <= row[2]]
    return next(((*row[3:5], row[5]) for row in matches if row[6] in (-1, nodes) and row[7] in (-1, ranks)), None)


@pytest.mark.parametrize(
    ("kind", "topology", "workers", "nodes"),
    [
        pytest.param("all_reduce", "dgx-h100", 16, 2, marks=pytest.mark.slow),
        pytest.param("all_reduce", "dgx-h100", 8, 1, marks=pytest.mark.slow),
        pytest.param("all_reduce", "fat-tree", 12, 3, marks=pytest.mark.slow),
        pytest.param("all_gather", "dgx-a100", 24, 3, marks=pytest.mark.slow),
        ("reduce_scatter", "fat-tree", 8, 2),
        pytest.param("broadcast", "dgx-h100", 7, 1, marks=pytest.mark.slow),
    ],
)
def test_the_plugin_runs_what_collective_names_at_every_size(kind, topology, workers, nodes):
    sizes = [4**power for power in range(5, 15)]
    spec = CollectiveSpec(kind=kind, topology=topology, workers=workers, size_bytes=sizes[0], library="nccl")
    made = write_tuner(spec, sizes)
    rows = read_tuner(made.text)
    planned = plan_collective(spec)
    own = {name.partition(":")[0] for name in planned.profile.candidates(planned.demand, planned.cluster)}
    assert all(first <= last for _, first, last, *_ in rows)
    assert [row[1] for row in rows[1:]] == [row[2] + 1 for row in rows[:-1]]
    for size, choice in zip(sizes, made.choices, strict=True):
        found = s2sim.run_collective(kind, topology, workers=workers, size_bytes=size, library="nccl")
        named = found
        if found.faster is not None and found.faster.protocol and found.faster.algorithm.partition(":")[0] in own:
            named = found.faster
        elif found.faster is not None:
            # Something that NCCL cannot run is faster still; of its own the one that is chosen is no slower.
            assert choice.time_s <= found.time_s
            continue
        algorithm, protocol, channels = applied(rows, found_kind(kind), size, nodes, workers)
        assert (algorithm, protocol) == (NCCL_ALGORITHMS[named.algorithm.partition(":")[0]], named.protocol.lower())
        assert choice.time_s == named.time_s
        assert channels == choice.channels >= 1
    between = (sizes[0] + sizes[1]) // 2
    assert applied(rows, found_kind(kind), between, nodes, workers) == applied(
        rows, found_kind(kind), sizes[0], nodes, workers
    )
    for other in ((sizes[0] - 1, nodes, workers), (sizes[-1] + 1, nodes, workers), (sizes[0], nodes + 1, workers)):
        assert applied(rows, found_kind(kind), *other) is None


def found_kind(kind):
    return kind.replace("_", "")


def test_another_choice_is_told_with_both_times():
    spec = CollectiveSpec(kind="all_reduce", topology="dgx-h100", workers=16, size_bytes=1, library="nccl")
    made = write_tuner(spec, [1 << power for power in range(18, 25)])
    others = [choice for choice in made.choices if choice.gain > 1]
    assert others
    for choice in others:
        assert choice.gain > 1 / 0.9
        assert f"{choice.text}\n" in made.text
        assert "NCCL's own choice, " in choice.text
    assert f"at {len(others)} of 7 sizes" in made.summary
    same = write_tuner(spec, [1 << 30])
    assert same.summary.startswith("NCCL's own choice is as good as any")


@pytest.mark.slow
def test_channels_are_as_many_as_a_buffer_fills():
    sizes = [1 << power for power in range(8, 30)]
    spec = CollectiveSpec(kind="all_reduce", topology="dgx-h100", workers=16, size_bytes=1, library="nccl")
    rows = {}
    for choice in write_tuner(spec, sizes).choices:
        rows.setdefault((choice.algorithm, choice.protocol), []).append(choice.channels)
    assert all(channels == sorted(channels) for channels in rows.values())
    # Two channels for each of eight interfaces.
    assert max(map(max, rows.values())) == 16


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["all_to_all", "--library", "nccl"], "and not for all_to_all"),
        (["all_reduce", "--library", "mpi"], "add --library nccl"),
        (["all_reduce", "--library", "nccl", "--algorithm", "ring"], "leave those options out"),
    ],
)
def test_what_no_tuner_is_asked_for_is_one_line(words, text, capsys, tmp_path):
    target = tmp_path / "tuner.conf"
    command = [
        "collective",
        "table",
        words[0],
        "--topology",
        "fat-tree",
        "--workers",
        "8",
        "--size",
        "1MiB",
        *words[1:],
    ]
    assert main([*command, "--tuner", str(target)]) == 2
    assert text in capsys.readouterr().err
    assert not target.exists()
