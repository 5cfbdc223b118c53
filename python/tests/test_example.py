import pathlib
import re
import subprocess
import sys

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "python" / "own_capsnet.py"


def test_the_example_trains_prunes_and_shows_trees():
    run = subprocess.run([sys.executable, str(EXAMPLE), "--images=1024", "--epochs=3"],
                         capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    rows = re.findall(r"^ +\d+ +([\d.]+)% +([\d.]+)%$", run.stdout, re.MULTILINE)
    assert len(rows) == 3
    sparsities = [float(sparsity) for _, sparsity in rows]
    assert sparsities == sorted(sparsities) and sparsities[-1] > 1
    assert float(rows[-1][0]) > 50
    assert re.search(r"test images: [\d.]+ bits", run.stdout)
    assert "Ankle boot" in run.stdout and "images)" in run.stdout
