"""A tour of two trained networks: what they answer, where they look, and their parse trees.

    make python
    PYTHONPATH=build/release/python /usr/bin/python3 examples/python/zoo_tour.py

writes explanation-*.png and trees-*.png, in half a minute on two cores.
"""

import argparse
import pathlib

import matplotlib

matplotlib.use("Agg")  # pictures go to files

import remcaps

NETWORKS = ["fashion-mnist/dr-capsnet", "fashion-mnist/dr-capsnet-rem"]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--images", type=int, default=2000, help="test images")
    arguments.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."))
    arguments = arguments.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    fashion = remcaps.data.load("fashion-mnist")
    test = fashion.test
    images, labels = test.images[:arguments.images], test.labels[:arguments.images]
    for name in NETWORKS:
        network = remcaps.load(f"zoo:{name}")
        explanation = network.explain(images[:1])
        print(f"{name}: image 0 is {explanation.class_name}, "
              f"{len(explanation.edges)} edges in its parse tree")
        save(explanation.plot(), arguments.out / f"explanation-{pathlib.Path(name).name}.png")

        trees, correct = remcaps.ParseTrees(levels=11), 0
        for batch, truth in zip(images.split(100), labels.split(100)):
            answer = network(batch, levels=11)
            trees.add(answer.couplings, answer.predicted)
            correct += (answer.predicted == truth).sum().item()
        print(f"  {correct / len(images):.1%} right, {trees.entropy:.2f} bits, "
              f"{trees.median_keys:g} parse trees per class (median)")
        save(trees.plot(class_names=fashion.class_names),
             arguments.out / f"trees-{pathlib.Path(name).name}.png")


def save(figure, path):
    figure.savefig(path, dpi=70)
    print(f"  {path}")


if __name__ == "__main__":
    main()
