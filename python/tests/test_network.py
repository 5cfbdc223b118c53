import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import numpy
import pytest
import torch

import remcaps

ZOO = pathlib.Path(__file__).parents[2] / "models"


@pytest.fixture(scope="module")
def fashion():
    return remcaps.data.load("fashion-mnist")


@pytest.fixture(scope="module")
def network():
    return remcaps.load("zoo:fashion-mnist/dr-capsnet-rem")


def test_data_sets_are_tensors(fashion):
    assert fashion.test.images.shape == (10000, 1, 28, 28)
    assert fashion.test.images.dtype == torch.uint8
    assert fashion.test.labels.bincount().tolist() == [1000] * 10
    assert len(fashion.train.labels) + len(fashion.validation.labels) == 60000
    assert "fashion-mnist" in remcaps.data.names()
    assert "images uint8 [10000, 1, 28, 28], labels int64 [10000]" in repr(fashion)
    with pytest.raises(remcaps.UsageError, match="validation: -5"):
        remcaps.data.load("fashion-mnist", validation=-5)
    with pytest.raises(remcaps.Error, match="did you mean"):
        remcaps.data.load("fashion-mnits")


def test_a_folder_of_pictures_is_a_data_set(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    for name in ("cats", "dogs"):
        (tmp_path / name).mkdir()
        for k in range(4):
            image.imsave(tmp_path / name / f"{k}.png", numpy.random.rand(8, 8, 3))
    pictures = remcaps.data.load("folder", folder=tmp_path)
    assert pictures.class_names == ["cats", "dogs"]
    assert sum(len(split.labels) for split in pictures.splits.values()) == 8


def test_a_zoo_network_classifies_tensors_arrays_and_pixels(network, fashion):
    assert network.architecture == "dr-capsnet" and network.input == (1, 28, 28)
    pixels = fashion.test.images[:200]
    answer = network(pixels)
    assert answer.lengths.shape == (200, 10) and answer.poses.shape[:2] == (200, 10)
    assert torch.equal(answer.predicted, answer.lengths.argmax(1))
    assert torch.allclose(answer.poses.norm(dim=-1), answer.lengths, atol=1e-4)
    assert (answer.predicted == fashion.test.labels[:200]).float().mean() > 0.88
    assert answer.couplings is None and answer.tree is None
    assert torch.equal(network(pixels.numpy()).lengths, answer.lengths)
    assert torch.equal(network(network.prepare(pixels)).lengths, answer.lengths)
    flipped = pixels.numpy()[:, :, ::-1]  # PyTorch takes no negative strides
    assert torch.equal(network(flipped).lengths, network(pixels.flip(2)).lengths)
    assert network(pixels[:0]).lengths.shape == (0, 10)
    assert repr(network(pixels[:2], trace=True)) == (
        f"Answer(predicted={answer.predicted[:2].tolist()}, lengths [2, 10], poses [2, 10, 16], "
        "couplings [2, 1152, 10])")
    for wrong, message in [(torch.rand(2, 3, 28, 28), r"\[2, 3, 28, 28\]; .*\[B, 1, 28, 28\]"),
                           (pixels[0], r"uint8 \[1, 28, 28\]; expected uint8 \[B, C, H, W\]"),
                           (pixels.long(), "int64 .*expected uint8 pixels or prepared float32")]:
        with pytest.raises(remcaps.UsageError, match=message):
            network(wrong)
    with pytest.raises(TypeError, match="images is of type NoneType"):
        network(None)


def test_quantized_answers_have_couplings_and_trees(network, fashion):
    answer = network(fashion.test.images[:20], levels=11)
    assert torch.allclose(answer.couplings, remcaps.quantize(answer.couplings, 11))
    assert list(answer.layers) == ["class"]
    column = answer.couplings[range(20), :, answer.predicted]
    assert torch.equal(answer.tree, (column * 10).round().to(torch.uint8))
    trees = remcaps.ParseTrees(11)
    trees.add(answer.couplings, answer.predicted)
    assert trees.samples_per_class.sum() == 20


def test_explanation_has_saliency_and_a_tree(network, fashion):
    explanation = network.explain(fashion.test.images[:1])
    assert explanation.class_name == network.class_names[int(explanation.answer.predicted)]
    assert explanation.saliency.shape == (28, 28) and explanation.saliency.min() >= 0
    assert explanation.edges and {edge.end for edge in explanation.edges} == {
        int(explanation.answer.predicted)}
    assert all(edge.coupling > 0.1 for edge in explanation.edges)
    assert xml.etree.ElementTree.fromstring(explanation.svg).tag.endswith("svg")
    page = explanation._repr_html_()
    assert page.count("data:image/png;base64,") == 3 and explanation.svg in page
    assert "dr-capsnet" in network._repr_html_()
    assert explanation.contribution_map.shape == (28, 28)
    assert explanation.evidence == pytest.approx(
        float(explanation.contributions.sum()) + explanation.bias_contribution, abs=1e-4)
    # What the network's own answer says: ||v|| = e^2 / (1 + e^2).
    length = float(explanation.answer.lengths.max())
    assert explanation.evidence ** 2 / (1 + explanation.evidence ** 2) == pytest.approx(length, 1e-4)
    assert 1 <= explanation.parts.half <= explanation.parts.spread + 1
    carried = sum(edge.share for edge in explanation.edges)
    positive = float(explanation.contributions.clamp(min=0).sum())
    assert carried * explanation.evidence == pytest.approx(positive / 2, rel=0.5)
    assert len(repr(explanation)) < 200
    couplings = network.explain(fashion.test.images[:1], view="couplings")
    assert couplings.evidence == explanation.evidence
    assert couplings.edges != explanation.edges
    with pytest.raises(remcaps.UsageError, match="view"):
        network.explain(fashion.test.images[:1], view="both")
    with pytest.raises(remcaps.Error, match="explain"):
        network.explain(fashion.test.images[:2])


def test_explanations_and_trees_are_drawn(network, fashion, tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    figure = network.explain(fashion.test.images[:1]).plot()
    assert len(figure.axes) == 4
    assert len(figure.axes[3].lines) > len(network.explain(fashion.test.images[:1]).edges)
    answer = network(fashion.test.images[:100], levels=11)
    trees = remcaps.ParseTrees(11)
    trees.add(answer.couplings, answer.predicted)
    figure = trees.plot()
    assert len(figure.axes[0].patches) == 100  # ten trees of ten classes
    figure.savefig(tmp_path / "trees.png")
    assert trees._repr_html_().count("<tr>") == 12


def test_python_layers_equal_the_network_of_the_program(network, fashion):
    class DrCapsNet(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(1, 256, 9)
            self.primary = remcaps.nn.PrimaryCaps(256, types=32, kernel=9, dim=8, stride=2)
            setattr(self, "class", remcaps.nn.FcCaps(32 * 36, 10))

        def forward(self, images, **request):
            layer = getattr(self, "class")
            return layer(self.primary(self.conv(images).relu()), **request)

    own, state = DrCapsNet(), network.state_dict()
    own.load_state_dict({name.replace("conv1.", "conv."): value for name, value in state.items()
                         if not name.startswith("decoder")})
    images = network.prepare(fashion.test.images[:50])
    with torch.no_grad():
        poses, couplings = own(images, trace=True)
    answer = network(images, trace=True)
    assert torch.allclose(poses, answer.poses, atol=1e-5)
    assert torch.allclose(couplings, answer.couplings, atol=1e-5)


@pytest.mark.parametrize("kernels", ["fused", "reference"])
@pytest.mark.parametrize("routing, recipe", [("dynamic", "mnist/dr-capsnet"),
                                             ("scaled-distance", "mnist/gamma-capsnet")])
def test_python_layers_equal_those_of_the_program_bit_for_bit(routing, recipe, kernels, tmp_path):
    conv = remcaps.nn.Conv2d(1, 64, 9, kernels=kernels)
    primary = remcaps.nn.PrimaryCaps(64, types=8, kernel=9, dim=8, stride=2, kernels=kernels)
    hidden = [remcaps.nn.FcCaps(8 * 36, 32, 8, 8, routing=routing, kernels=kernels)]
    if routing == "dynamic":
        hidden = []
    top = remcaps.nn.FcCaps(32 if hidden else 8 * 36, 10, 8, 16, routing=routing, kernels=kernels)
    state = {f"conv1.{name}": value for name, value in conv.state_dict().items()}
    state.update({f"primaryCaps.caps_poses.{name}": value
                  for name, value in primary.conv.state_dict().items()})
    for name, layer in zip(["fcCaps", "classCaps"][-len(hidden) - 1:], hidden + [top]):
        grid = (8, 6, 6) if layer is (hidden + [top])[0] else (32, 1, 1)
        state[f"{name}.weight"] = layer.weight.detach().reshape(*grid, *layer.weight.shape[1:])
        state[f"{name}.routing_bias"] = layer.bias.detach()
    torch.save(state, tmp_path / "own.pt")
    remcaps.convert(tmp_path / "own.pt", tmp_path / "own.safetensors", recipe, kernels=kernels)
    network = remcaps.load(tmp_path / "own.safetensors")

    images = torch.randn(40, 1, 28, 28)  # few images have a kernel of their own, which packs weights
    with torch.no_grad():
        capsules = primary(conv(images).relu())
        for layer in hidden:
            capsules = layer(capsules, levels=11)
        poses, couplings = top(capsules, levels=11, trace=True)
    answer = network(images, levels=11)
    assert torch.equal(poses, answer.poses) and torch.equal(couplings, answer.couplings)


def test_evaluate_and_entropy_give_the_numbers_of_the_card():
    name = "fashion-mnist/eff-capsnet-rem"
    evaluation = remcaps.evaluate(f"zoo:{name}")
    entropy = remcaps.entropy(f"zoo:{name}")
    assert evaluation["samples"] == 10000
    confusion = numpy.array(evaluation["confusion"])
    assert confusion.sum() == 10000
    assert confusion.trace() / 10000 == pytest.approx(evaluation["accuracy"])
    card = (ZOO / f"{name}.md").read_text()
    assert f"{evaluation['accuracy'] * 100:.2f}" in card
    assert f"{entropy['entropy']:.2f}" in card
    assert json.dumps(entropy)  # plain numbers and lists


def test_a_wrong_name_is_one_line_that_suggests():
    with pytest.raises(remcaps.UsageError, match="did you mean") as error:
        remcaps.load("zoo:fashion-mnist/dr-capsnet-rme")
    assert "\n" not in str(error.value)
    with pytest.raises(remcaps.Error):
        remcaps.load("no/such/run")
    with pytest.raises(remcaps.UsageError, match="batch: 0; expected 1 or more"):
        remcaps.evaluate("zoo:fashion-mnist/eff-capsnet-rem", batch=0)
    with pytest.raises(TypeError, match="split is of type int; expected a string"):
        remcaps.evaluate("zoo:fashion-mnist/eff-capsnet-rem", 3)


def test_networks_and_recipes_are_found_from_any_folder(tmp_path):
    package = str(pathlib.Path(remcaps.__file__).absolute().parents[1])
    code = (f"import sys; sys.path.insert(0, {package!r}); import remcaps; print(remcaps.load('zoo:mnist/eff-capsnet-rem').architecture, "
            "'mnist/eff-capsnet' in remcaps.recipes())")
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert run.stdout.split() == ["eff-capsnet", "True"], run.stderr
