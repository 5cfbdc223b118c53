"""A capsule network written in PyTorch, trained with REM on Fashion-MNIST, and its parse trees.

    make python
    PYTHONPATH=build/release/python /usr/bin/python3 examples/python/own_capsnet.py

takes a minute or two on two cores; --images and --epochs change that. It writes own-capsnet.png.
"""

import argparse
import pathlib

import matplotlib

matplotlib.use("Agg")  # the picture goes to a file

from matplotlib import pyplot
import torch

import remcaps


class CapsNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 32, 9)  # 28x28 -> 20x20
        self.primary = remcaps.nn.PrimaryCaps(32, types=8, kernel=9, dim=8, stride=2)  # -> 6x6
        self.top = remcaps.nn.FcCaps(8 * 6 * 6, 10, child_dim=8, parent_dim=16)

    def forward(self, images, **request):
        return self.top(self.primary(self.conv(images).relu()), **request)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--images", type=int, default=2048, help="training images")
    arguments.add_argument("--epochs", type=int, default=4)
    arguments.add_argument("--out", type=pathlib.Path, default=pathlib.Path("own-capsnet.png"))
    arguments = arguments.parse_args()

    data = remcaps.data.load("fashion-mnist", validation=1024)
    train = as_batches(data.train, arguments.images)
    validation = as_batches(data.validation, 1024)
    test = as_batches(data.test, 2000)

    torch.manual_seed(42)
    model = CapsNet()
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    # lambda is ten times the published one, since the run is short.
    rem = remcaps.Rem(model.named_parameters(), lambda_=1e-3, tolerance=0.01)

    history = []  # accuracy and sparsity after each epoch
    print("epoch  accuracy  sparsity")
    for epoch in range(arguments.epochs):
        model.train()
        for images, labels in train:
            optimiser.zero_grad()
            lengths = model(images).norm(dim=-1)
            remcaps.functional.margin_loss(lengths, labels).backward()
            rem.after_backward()
            optimiser.step()
            rem.after_step()
        rem.after_epoch(lambda: evaluate(model, validation))
        _, accuracy = evaluate(model, validation)
        history.append((accuracy, rem.sparsity))
        print(f"{epoch + 1:5}  {accuracy:8.1%}  {rem.sparsity:8.1%}", flush=True)

    trees = parse_trees(model, test)
    print(f"\ntest images: {trees.entropy:.2f} bits, "
          f"{trees.median_keys:g} parse trees per class (median)\n")
    print("class        images  trees    bits  most frequent tree: children per coupling")
    for k, name in enumerate(data.class_names):
        print(f"{name:12} {trees.samples_per_class[k]:6} {trees.keys_per_class[k]:6} "
              f"{trees.entropy_per_class[k]:7.2f}  {describe(trees, k)}")
    draw(history, trees, data.class_names).savefig(arguments.out, dpi=70)


def as_batches(split, limit, size=64):
    """The first images of a split, normalised."""
    images = split.images[:limit].float() / 255
    return list(zip(images.split(size), split.labels[:limit].split(size)))


@torch.no_grad()
def evaluate(model, batches):
    """Mean loss and accuracy."""
    model.eval()
    loss = correct = count = 0
    for images, labels in batches:
        lengths = model(images).norm(dim=-1)
        loss += remcaps.functional.margin_loss(lengths, labels).item() * len(labels)
        correct += (lengths.argmax(1) == labels).sum().item()
        count += len(labels)
    return loss / count, correct / count


@torch.no_grad()
def parse_trees(model, batches):
    trees = remcaps.ParseTrees(levels=11)
    for images, _ in batches:
        poses, couplings = model(images, levels=11, trace=True)
        trees.add(couplings, poses.norm(dim=-1).argmax(1))
    return trees


def describe(trees, class_index):
    for tree in trees.most_frequent(class_index, limit=1):
        counts = {}
        for level in tree.levels:
            counts[level] = counts.get(level, 0) + 1
        children = ", ".join(f"{n} x {trees.levels[k]:.1f}" for k, n in sorted(counts.items()))
        return f"{children} ({tree.count} images)"
    return "-"


def draw(history, trees, class_names):
    figure = pyplot.figure(figsize=(12, 4), constrained_layout=True)
    left, right = figure.subfigures(1, 2, width_ratios=[1, 2])
    panel = left.subplots()
    for values, name in zip(zip(*history), ["accuracy", "sparsity"]):
        panel.plot(range(1, len(values) + 1), values, marker="o", label=name)
    panel.set(xlabel="epoch", ylim=(0, 1), xticks=range(1, len(history) + 1))
    panel.legend()
    trees.plot(right, class_names=class_names)
    return figure


if __name__ == "__main__":
    main()
