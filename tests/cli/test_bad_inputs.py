"""Whatever is wrong with what is asked, the answer is one line that says so, soon and in little memory."""

import json
import os
import shlex
import time
from pathlib import Path

import numpy as np
import pytest

from s2sim.cli.main import main

# Of this process alone; importing what a command needs takes most of it the first time.
MOST_SECONDS = 3.0

RUN = "run --topology single-switch --workers 4"
COLLECTIVE = "collective all_reduce --topology single-switch --workers 4 --size 1MiB"
FLOWS = "flows transfers.csv --topology single-switch"
COMPARE = "run --topology fat-tree --workers 4 --show pareto"
REGIMES = "regimes --workers 8"

# Files that are no regular files, are too large, or hold something else, by how they are named on the command line.
STRANGE = ("/dev/zero", "./pipe", "./folder", "./missing", "./huge", "./noise", "./zeros", "./deep")
TAKES_A_FILE = (
    "flows {} --topology single-switch",
    "run --spec {}",
    "collective --spec {}",
    "flows --spec {}",
    "topology show {}",
    f"{RUN} --placement {{}}",
    f"{RUN} --trace {{}}",
    f"{RUN} --model {{}}.toml",
    f"{RUN} --gpu {{}}",
    "collective all_gather --topology single-switch --workers 4 --sizes {}",
    "trace show {}",
    "trace import {}.npy --out out",
)

# What `run` says of plain mistakes is in test_run.py, and below that it names the option.
BAD = f"""
frobnicate
--frobnicate
run
run --topology single-switch
run --workers 4
run --topology '' --workers 4
run --topology ./nowhere.toml --workers 4
run --topology "bad\x1b[31mname" --workers 4
run --topology "two\nlines" --workers 4
run --topology single-switch --workers ''
run --topology single-switch --workers 1000000
run --topology single-switch --workers 99999999999
run --topology fat-tree --workers 100000 --trace synthetic:rows=100000,width=1000,density=1
{RUN} --reducer ''
{RUN} --reducer :
{RUN} --reducer topk:density
{RUN} --reducer topk:density=
{RUN} --reducer topk:density=0
{RUN} --reducer topk:densty=0.1
{RUN} --reducer topk:density=0.1,density=0.2
{RUN} --reducer s2:rows=0
{RUN} --reducer fp16:h=999999999999
{RUN} --reducer s2:rows={"9" * 40}
{RUN} --reducer s2:cells=-1
{RUN} --reducer s2:cells=inf
{RUN} --reducer s2:columns=4000000000000
{RUN} --reducer "union\x1b[2J"
{RUN} --trace ''
{RUN} --trace synthetic:density=0
{RUN} --trace synthetic:density=2
{RUN} --trace synthetic:overlap=-1
{RUN} --trace synthetic:rows=0
{RUN} --trace synthetic:rows=1000000000000,width=1000000
{RUN} --trace synthetic:tail=fat
{RUN} --trace synthetic:colour=red
{RUN} --scale-to 0
{RUN} --scale-to big
{RUN} --scale-to {"9" * 400}
{RUN} --scale-to 350M --model lstm
{RUN} --model nothing
{RUN} --set nic.rate
{RUN} --set nic.rate=
{RUN} --set nic.rate=fast
{RUN} --set nic.rate=0Gbps
{RUN} --set nic.rate=-1Gbps
{RUN} --set nic.latency=5m
{RUN} --set node.gpus=0
{RUN} --set nic.rate=1Gbps --set nic.rate=2Gbps
{RUN} --set =
{RUN} --set "nic.rate=1Gbps\r\x07"
{RUN} --placement ''
{RUN} --placement ./two-ranks.txt
{RUN} --placement ./twice.txt
{RUN} --collective ring:channels=0
{RUN} --collective ring:channels=99999999999
{RUN} --compute -1ms
{RUN} --compute soon
{RUN} --max-error nothing
{RUN} --fault nothing
{RUN} --fault slow-rank
{RUN} --fault slow-rank:rank=99,factor=2
{RUN} --fault slow-rank:rank=0,factor=0
{RUN} --fault slow-rank:rank=0,factor=nan
{RUN} --fault slow-link:link=nowhere,factor=0.5
{RUN} --fault fail-link:link=*
{RUN} --fault jitter:latency=5
{RUN} --fault background:load=2
{RUN} --dtype int8
{RUN} --plot nothing --png picture.png
{RUN} --plot bars
{RUN} --gpu ./broken.toml
{RUN} --steps -1
{RUN} --steps 1000000
{RUN} --seed x
{RUN} --png picture.jpg
{RUN} --png picture
{RUN} --png -
{RUN} --timeline -
{RUN} --json both.png --png both.png
{RUN} --bogus
{RUN} leftover
run --spec good.json --workers 4
run --spec list.json
run --spec number.json
run --spec unknown-field.json
run --spec control.json
run --spec nul.json
run --spec negative.json
run --spec ''
collective
collective all_reduce --topology single-switch --workers 4
collective all_produce --topology single-switch --workers 4 --size 1MiB
collective '' --topology single-switch --workers 4 --size 1MiB
collective barrier --topology single-switch --workers 4 --size 1MiB
{COLLECTIVE} --algorithm nothing
{COLLECTIVE} --algorithm bruck
{COLLECTIVE} --algorithm torus:size=3x3
{COLLECTIVE} --algorithm double-binary-tree:chunks=0
{COLLECTIVE} --sizes two-sizes.txt
{COLLECTIVE} --root -1
{COLLECTIVE} --network carrier-pigeon
{COLLECTIVE} --packet-bytes 4KiB
{COLLECTIVE} --network packet --packet-bytes 0B
{COLLECTIVE} --network packet --buffer 1
{COLLECTIVE} --json - --goal -
{COLLECTIVE} --json - --show
collective all_reduce --topology single-switch --workers 4 --size 5
collective all_reduce --topology single-switch --workers 4 --size 1.5B
collective all_reduce --topology single-switch --workers 4 --size 1e30GiB
collective all_reduce --topology single-switch --workers 4 --size -1MiB
collective broadcast --topology single-switch --workers 4 --size 1MiB --root 4
collective all_gather --topology single-switch --workers 4 --sizes two-sizes.txt
collective all_gather --topology single-switch --workers 2 --sizes bad-size.txt
collective all_to_all --topology single-switch --workers 100000 --size 1MiB
collective all_reduce --topology single-switch --workers 100000 --size 1MiB --algorithm direct
collective all_reduce --topology single-switch --workers 11000000 --size 1MiB
flows
flows transfers.csv
flows nothing.csv --topology single-switch
flows empty.csv --topology single-switch
flows no-header.csv --topology single-switch
flows letters.csv --topology single-switch
flows self.csv --topology single-switch
flows past.csv --topology single-switch
flows nan.csv --topology single-switch
flows far.csv --topology single-switch
flows wide.csv --topology single-switch
flows short.csv --topology single-switch
{FLOWS} --workers 2
{FLOWS} --out -
{FLOWS} --out both.csv --json both.csv
codec nothing
dev
dev nothing
{COMPARE} --trace nothing
{COMPARE} --reducer nothing
run --topology fat-tree --show pareto --workers x
run --topology fat-tree --show pareto --workers 1000000
{REGIMES} --density 0
{REGIMES} --density a,b
{REGIMES} --density ''
{REGIMES} --density 0.1,0.1
{REGIMES} --overlap 2
{REGIMES} --rate 10
{REGIMES} --latency 10
{REGIMES} --tail nothing
{REGIMES} --rows 0
{REGIMES} --rows 1000000000000
{REGIMES} --prefetch --reducer union
regimes --workers 1
regimes --workers 1000000
explore leftover
explore --port 0
explore --port 99999
explore --workers x
explore --trace nothing
explore --reducer topk:densty=1
explore --topology nope
topology
topology show
topology show nothing
topology show hardware
topology show single-switch --workers 99999999999
topology show single-switch --workers 100000000
topology show broken.toml
topology show control.toml
topology show number.toml
topology show dotted.toml
topology show endless.toml
topology show fat-tree --set fabric.kind=pretzel
topology show single-switch --png picture.gif
topology show single-switch --seed -1
list nothing
list --json folder
trace
trace show
trace show nothing
trace show folder
trace show control-trace
trace show synthetic:nothing=1
trace check nothing
trace check synthetic
trace import
trace import missing.npy --out out
trace import pickled.npy --out out
trace import text.npy --out out
trace import whole.npy --out out
trace import good.npy unequal.npy --out out
trace import infinite.npy --out out
trace import good.npy missing.npy --out out
trace import noise.npz --out out
trace import noise.safetensors --out out
trace import long.safetensors --out out
trace import lie.npy --out out
trace import good.npy --out no/where
trace import good.npy --out /proc/out
trace import good.npy --out full-folder
trace import good.npy --out transfers.csv
trace record nothing --workers 2 --out out
trace record cnn --workers 0 --out out
trace record cnn --workers 2 --steps 0 --out out
trace record cnn --workers 2 --out no/where
trace record cnn --workers 2 --out out --seed -1
trace record lstm --workers 2 --out out
trace record lstm --workers 2 --out out --text /dev/zero
trace record lstm --workers 2 --out out --text ./missing
"""

SPEC = {"topology": "single-switch", "workers": [4]}
HEADER = "start_s,src,dst,bytes\n"
FILES = {
    "transfers.csv": f"{HEADER}0,0,4,1000\n",
    "empty.csv": "",
    "no-header.csv": "0,0,4,1000\n",
    "letters.csv": f"{HEADER}0,a,b,c\n",
    "self.csv": f"{HEADER}0,1,1,1000\n",
    "past.csv": f"{HEADER}-1,0,1,1000\n",
    "nan.csv": f"{HEADER}nan,0,1,nan\n",
    "far.csv": f"{HEADER}0,0,999999999,1000\n",
    "wide.csv": f"{HEADER}0,0,1,{'1' * 200_000}\n",
    "short.csv": f"{HEADER}0,0\n",
    "two-ranks.txt": "0 0\n1 0\n",
    "twice.txt": "0 0\n0 0\n1 0\n2 0\n",
    "two-sizes.txt": "1MiB\n2MiB\n",
    "bad-size.txt": "1MiB\n\x1b[31mred\n",
    "good.json": json.dumps(SPEC),
    "list.json": "[1, 2]",
    "number.json": "9" * 5000,
    "unknown-field.json": json.dumps({**SPEC, "colour\x1b[31m": "red"}),
    "control.json": json.dumps({**SPEC, "topology": "\x1b[31m\r\n\u202e"}),
    "nul.json": json.dumps({**SPEC, "topology": "./a\0b.toml"}),
    "negative.json": json.dumps({**SPEC, "workers": [-4]}),
    "broken.toml": "[node",
    "control.toml": 'description = "a"\n"\\u001b[31m" = 1\n',
    "number.toml": f"a = {'9' * 5000}\n",
    "dotted.toml": ".".join("a" * 5000) + " = 1\n",
    "endless.toml": "a = " + "[" * 100_000,
    "text.npy": "no array",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Make the files that the command lines name."""
    place = tmp_path_factory.mktemp("bad")
    for name, text in FILES.items():
        (place / name).write_text(text)
    for ending in ("", ".toml", ".npy"):
        os.mkfifo(place / f"pipe{ending}")
        (place / f"folder{ending}").mkdir()
        (place / f"noise{ending}").write_bytes(np.random.default_rng(1).bytes(10_000))
        (place / f"zeros{ending}").write_bytes(bytes(1_000_000))
        (place / f"deep{ending}").write_text("[" * 200_000)
        (place / f"huge{ending}").touch()
        os.truncate(place / f"huge{ending}", 600 * 2**20)
    for ending in (".npz", ".safetensors"):
        (place / f"noise{ending}").write_bytes(np.random.default_rng(1).bytes(10_000))
    # A header longer than the file, and one of an array longer than any memory.
    (place / "long.safetensors").write_bytes(b"\xff" * 7 + b"\x7f{")
    with (place / "lie.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (10**12,)})
    (place / "full-folder").mkdir()
    (place / "full-folder" / "file").touch()
    (place / "control-trace").mkdir()
    (place / "control-trace" / "manifest.json").write_text(json.dumps({"schema_version": 1, "\x1b[31m": "\x1b[0m"}))
    np.save(place / "good.npy", np.ones(4, np.float32))
    np.save(place / "unequal.npy", np.ones(5, np.float32))
    np.save(place / "infinite.npy", np.full(4, np.inf, np.float32))
    np.save(place / "whole.npy", np.ones(4, np.int64))
    np.save(place / "pickled.npy", np.array([{}]), allow_pickle=True)
    return place


LINES = [
    *filter(None, BAD.replace("\n", "\0").replace("two\0lines", "two\nlines").split("\0")),
    *(line.format(name) for line in TAKES_A_FILE for name in STRANGE),
]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
# The default run takes every fourth of them.
@pytest.mark.parametrize(
    "line", [pytest.param(line, marks=[pytest.mark.slow] if place % 4 else []) for place, line in enumerate(LINES)]
)
def test_a_mistake_is_told_in_one_line(line, s2sim, place, monkeypatch):
    monkeypatch.chdir(place)
    before = time.process_time()
    code, out, err = s2sim(*shlex.split(line))
    assert time.process_time() - before < MOST_SECONDS
    assert code == 2
    # A group without a command shows its help instead.
    assert (err.startswith("s2sim: error: ") and err.count("\n") == 1 and not out) or out.startswith("Usage: ")
    assert err.strip("\n").isprintable()
    assert len(err) < 700
    assert not (place / "out").exists()


@pytest.mark.parametrize(
    "line",
    [
        f"{RUN} --compute 120",
        f"{RUN} --spec ''",
        f"{RUN} --scale-to 5",
        f"{RUN} --max-error 2",
        f"{RUN} --steps 0",
        f"{RUN} --workers 0",
        "collective all_reduce --topology single-switch --workers 4 --size 5",
        f"{COLLECTIVE} --network packet --packet-bytes 5",
        f"{COLLECTIVE} --network packet --buffer 1",
        f"{REGIMES} --rate 10",
        f"{REGIMES} --latency 10",
        f"{REGIMES} --density 0.1,0.1",
    ],
)
def test_a_mistake_in_an_option_names_it(line, fails, place, monkeypatch):
    monkeypatch.chdir(place)
    *_, option, _ = shlex.split(line)
    assert option in fails(*shlex.split(line))


@pytest.mark.parametrize(
    "line",
    [
        "flows own.csv --topology fat-tree --json own.csv",
        "flows own.csv --topology=fat-tree --json=./own.csv",
        "run --topology ./own.toml,fat-tree --workers 4 --trace ncf --reducer union --html own.toml",
        "sweep own.toml --out cells --html own.toml",
        "import own.toml --out own.toml",
    ],
)
def test_no_output_replaces_an_input(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("own.csv", "own.toml"):
        Path(name).write_text("as it was")
    assert main(line.split()) == 2
    assert "would replace what is read: name another file" in capsys.readouterr().err
    assert {path.read_text() for path in tmp_path.iterdir()} == {"as it was"}
