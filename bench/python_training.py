"""Training speed of a DR-CapsNet written in Python, beside the program's own.

    make build python
    PYTHONPATH=build/release/python /usr/bin/python3 bench/python_training.py build/release/remcaps

The variants take turns, so that a change of the machine's speed meets all of them. The last column
is the median, over the rounds, of the ratio to the same network in PyTorch alone.
"""

import argparse
import json
import statistics
import subprocess
import time

import torch

import remcaps

CHILDREN, CLASSES = 32 * 6 * 6, 10
EINSUM = "Python: PyTorch alone, einsum routing"


class EinsumRouting(torch.nn.Module):
    """Dynamic routing as most PyTorch code writes it."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(CHILDREN, CLASSES, 16, 8) * 0.1)
        self.bias = torch.nn.Parameter(torch.full((CLASSES, 16), 0.1))

    def forward(self, children):
        votes = torch.einsum("ijdk,bik->bijd", self.weight, children)
        logits = votes.new_zeros(votes.shape[:3])
        for iteration in range(3):
            last = iteration == 2
            used = votes if last else votes.detach()
            couplings = torch.softmax(logits, dim=2)
            poses = remcaps.functional.squash(
                torch.einsum("bij,bijd->bjd", couplings, used) + self.bias)
            if not last:
                logits = logits + torch.einsum("bijd,bjd->bij", used, poses)
        return poses


class DrCapsNet(torch.nn.Module):
    """`kernels` of the convolutions and the squash: "reference" is PyTorch's."""

    def __init__(self, routing, kernels):
        super().__init__()
        self.conv = remcaps.nn.Conv2d(1, 256, 9, kernels=kernels)
        self.primary = remcaps.nn.PrimaryCaps(256, types=32, kernel=9, dim=8, stride=2,
                                              kernels=kernels)
        self.top = routing

    def forward(self, images):
        return self.top(self.primary(self.conv(images).relu()))


def python_rate(model, adam, batch, seconds):
    optimiser = adam(model.parameters())
    images, labels = torch.rand(batch, 1, 28, 28), torch.arange(batch) % CLASSES

    def step():
        optimiser.zero_grad(set_to_none=True)
        lengths = model(images).norm(dim=-1)
        remcaps.functional.margin_loss(lengths, labels).backward()
        optimiser.step()

    step()
    step()
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        step()
        steps += 1
    return steps * batch / (time.perf_counter() - start)


def program_rate(program, kernels, batch, seconds):
    run = subprocess.run([program, "bench", "train", "--model=dr-capsnet", "--shape=mnist",
                          f"--batch={batch}", f"--kernels={kernels}", f"--seconds={seconds}", "--json"],
                         capture_output=True, text=True, check=True)
    return json.loads(run.stdout)["images_per_s"]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("program", help="the program remcaps")
    arguments.add_argument("--batch", type=int, default=32)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--seconds", type=int, default=4, help="for each variant in each round")
    given = arguments.parse_args()

    work = (given.batch, given.seconds)
    torchs, ours = torch.optim.Adam, remcaps.optim.Adam

    def routed():
        return remcaps.nn.FcCaps(CHILDREN, CLASSES)

    variants = {
        "Python: convolutions, routing and Adam of remcaps":
            lambda: python_rate(DrCapsNet(routed(), "fused"), ours, *work),
        "Python: convolutions and routing of remcaps":
            lambda: python_rate(DrCapsNet(routed(), "fused"), torchs, *work),
        "Python: routing of remcaps":
            lambda: python_rate(DrCapsNet(routed(), "reference"), torchs, *work),
        EINSUM:
            lambda: python_rate(DrCapsNet(EinsumRouting(), "reference"), torchs, *work),
        "program: plain kernels": lambda: program_rate(given.program, "reference", *work),
        "program: fused kernels": lambda: program_rate(given.program, "fused", *work),
    }
    rates = {name: [] for name in variants}
    for _ in range(given.rounds):
        for name, measure in variants.items():
            rates[name].append(measure())

    print("| DR-CapsNet, training, images/s | best | range | beside einsum routing |\n|---|---|---|---|")
    for name, found in rates.items():
        ratio = statistics.median(a / b for a, b in zip(found, rates[EINSUM]))
        print(f"| {name} | {max(found):.0f} | {min(found):.0f} to {max(found):.0f} | {ratio:.1f} x |")


if __name__ == "__main__":
    main()
