import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest
import torch

import remcaps

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "python"


def run_example(name, *arguments):
    run = subprocess.run([sys.executable, str(EXAMPLES / name), *arguments],
                         capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return run


def test_the_tour_prints_numbers_and_writes_pictures(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    run = run_example("zoo_tour.py", "--images=200", f"--out={tmp_path}")
    found = re.findall(r"([\d.]+)% right, ([\d.]+) bits", run.stdout)
    (accuracy, bits), (pruned_accuracy, pruned_bits) = [tuple(map(float, row)) for row in found]
    assert min(accuracy, pruned_accuracy) > 85 and pruned_bits < bits
    assert run.stdout.count("Ankle boot") == 2
    pictures = sorted(tmp_path.iterdir())
    assert [p.name for p in pictures] == [
        f"{kind}-{name}.png" for kind in ("explanation", "trees")
        for name in ("dr-capsnet-rem", "dr-capsnet")]
    assert all(image.imread(p)[..., :3].std() > 0.05 for p in pictures)  # not blank


def test_the_example_trains_prunes_and_shows_trees(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    picture = tmp_path / "own-capsnet.png"
    run = run_example("own_capsnet.py", "--images=1024", "--epochs=3", f"--out={picture}")
    assert image.imread(picture)[..., :3].std() > 0.05  # not blank
    rows = re.findall(r"^ +\d+ +([\d.]+)% +([\d.]+)%$", run.stdout, re.MULTILINE)
    assert len(rows) == 3
    sparsities = [float(sparsity) for _, sparsity in rows]
    assert sparsities == sorted(sparsities) and sparsities[-1] > 1
    assert float(rows[-1][0]) > 50
    assert re.search(r"test images: [\d.]+ bits", run.stdout)
    assert "Ankle boot" in run.stdout and "images)" in run.stdout


def test_the_rival_of_the_benchmark_computes_the_same():
    path = EXAMPLES.parents[1] / "bench" / "python_training.py"
    spec = importlib.util.spec_from_file_location("python_training", path)
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)

    torch.manual_seed(0)
    ours, rival = remcaps.nn.FcCaps(bench.CHILDREN, bench.CLASSES), bench.EinsumRouting()
    rival.load_state_dict(ours.state_dict())
    children = torch.randn(2, bench.CHILDREN, 8)
    poses = [routing(children) for routing in (ours, rival)]
    torch.testing.assert_close(*poses, rtol=1e-4, atol=1e-5)
    for found in poses:
        found.square().sum().backward()
    torch.testing.assert_close(ours.weight.grad, rival.weight.grad, rtol=1e-3, atol=1e-5)
    network = bench.DrCapsNet(rival, "reference")
    assert bench.python_rate(network, remcaps.optim.Adam, batch=2, seconds=0.01) > 0
