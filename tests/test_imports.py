"""What is started or imported alone imports nothing heavy that it does not need."""

import subprocess
import sys

import pytest

COLLECTIVE = ["collective", "all_reduce", "--topology", "fat-tree", "--workers", "32", "--size", "1MiB", "--quiet"]
MAIN = "from s2sim.cli.main import main; main"


@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        # The table of old paths, which csv reads, costs nothing until one is used.
        ("import s2sim; dir(s2sim)", "numpy pydantic scipy simpy rich csv"),
        ("import s2sim.gradients.synthetic", "torch pydantic safetensors"),
        ("import s2sim.report.figures.schedule", "matplotlib"),
        (f"{MAIN}(['--help'])", "numpy simpy scipy safetensors torch pydantic"),
        (f"{MAIN}({COLLECTIVE})", "scipy safetensors torch s2sim.reducers s2sim.codecs"),
    ],
)
def test_nothing_heavy_is_imported(program, heavy):
    code = f"import sys; {program}; sys.exit(' '.join(set({heavy.split()}) & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
