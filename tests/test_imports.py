"""What is started or imported alone imports nothing heavy that it does not need."""

import subprocess
import sys

import pytest

COLLECTIVE = ["collective", "all_reduce", "--topology", "fat-tree", "--workers", "32", "--size", "1MiB", "--quiet"]
MAIN = "from s2sim.cli.main import main; main"


@pytest.mark.parametrize(
    "programs",
    [
        # One after the other in a process: what one may not import, those before it may not either.
        (
            # The table of old paths, which csv reads, costs nothing until one is used.
            ("import s2sim; dir(s2sim)", "numpy pydantic scipy simpy rich csv"),
            (f"{MAIN}(['--help'])", "numpy simpy scipy safetensors torch pydantic"),
            ("import s2sim.gradients.synthetic", "torch pydantic safetensors"),
            ("import s2sim.report.figures.style", "matplotlib"),
        ),
        ((f"{MAIN}({COLLECTIVE})", "scipy safetensors torch s2sim.reducers s2sim.codecs"),),
    ],
)
def test_nothing_heavy_is_imported(programs):
    code = "import sys\n" + "".join(
        f"{program}\nif found := {set(heavy.split())} & sys.modules.keys(): sys.exit(' '.join(found))\n"
        for program, heavy in programs
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
