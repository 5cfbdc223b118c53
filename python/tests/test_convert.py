import json
import pathlib
import struct

import numpy
import pytest
import torch

import remcaps

GOLDEN = pathlib.Path(__file__).parents[2] / "tests" / "golden"


class Golden:
    """A network of REM's authors; tests/golden/README.md describes the file."""

    def __init__(self, name):
        data = (GOLDEN / f"{name}.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        self.header = json.loads(data[8:8 + length])
        self.data = data[8 + length:]
        self.metadata = self.header["__metadata__"]
        self.parameters = {key: self.values(key, *entry) for key, entry in
                           json.loads(self.metadata["parameters"]).items()}
        self.input = self.values(*json.loads(self.metadata["input"]))

    def load(self, name):
        begin, end = self.header[name]["data_offsets"]
        values = numpy.frombuffer(self.data[begin:end], "<f4").copy()
        return torch.from_numpy(values).reshape(self.header[name]["shape"])

    def values(self, name, shape, scale, offset):
        seed = 2166136261
        for byte in (self.metadata["salt"] + name).encode():
            seed = ((seed ^ byte) * 16777619) % 2**32
        h = (numpy.arange(numpy.prod(shape), dtype=numpy.uint64) * 2654435761 + seed) % 2**32
        h = h.astype(numpy.uint32)
        h ^= h >> 16
        h *= numpy.uint32(0x7FEB352D)
        h ^= h >> 15
        h *= numpy.uint32(0x846CA68B)
        h ^= h >> 16
        values = offset + scale * (h / 2147483648.0 - 1.0)
        return torch.from_numpy(values.astype(numpy.float32)).reshape(shape)


@pytest.mark.parametrize("name, recipe", [("dr_mnist", "mnist/dr-capsnet"),
                                          ("gamma_mnist", "mnist/gamma-capsnet"),
                                          ("deepcaps_eval", "mnist/deepcaps")])
def test_a_state_dict_of_the_authors_gives_their_activations(name, recipe, tmp_path):
    golden = Golden(name)
    state = dict(golden.parameters)
    if name == "deepcaps_eval":
        channels = len(state["bn1.weight"])
        state.update({"bn1.running_mean": torch.zeros(channels),
                      "bn1.running_var": torch.ones(channels),
                      "bn1.num_batches_tracked": torch.tensor(7)})
    torch.save(state, tmp_path / "theirs.pt")
    remcaps.convert(tmp_path / "theirs.pt", tmp_path / "ours.safetensors", recipe)
    network = remcaps.load(tmp_path / "ours.safetensors")
    assert network.class_names == remcaps.load("zoo:mnist/dr-capsnet-rem").class_names
    expected = golden.load("activations")
    found = network(golden.input).lengths
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max() + 1e-6


def keras_network(path, channels=(2, 4, 4, 16), classes=10):
    """Writes an Efficient-CapsNet for MNIST as Keras does, and returns what it computes."""
    h5py = pytest.importorskip("h5py")
    weights, chain = {}, (1,) + channels
    for k, size in enumerate((5, 3, 3, 3)):
        layer, norm = ("conv2d", "batch_normalization") if k == 0 else (
            f"conv2d_{k}", f"batch_normalization_{k}")
        weights[f"{layer}/kernel:0"] = torch.randn(size, size, chain[k], chain[k + 1]) * 0.3
        weights[f"{layer}/bias:0"] = torch.randn(chain[k + 1]) * 0.1
        for part in ("gamma", "beta", "moving_mean"):
            weights[f"{norm}/{part}:0"] = torch.randn(chain[k + 1])
        weights[f"{norm}/moving_variance:0"] = torch.rand(chain[k + 1]) * 0.01
    weights["primary_caps/kernel:0"] = torch.randn(9, 9, 1, channels[-1]) * 0.01
    weights["primary_caps/bias:0"] = torch.randn(channels[-1]) * 0.1
    weights["digit_caps/W:0"] = torch.randn(classes, channels[-1] // 8, 8, 16)
    weights["digit_caps/b:0"] = torch.randn(classes, channels[-1] // 8, 1)
    with h5py.File(path, "w") as file:
        file.create_group("Generator").attrs["weight_names"] = [b"dense/kernel:0"]
        file["Generator/dense/kernel:0"] = torch.randn(3, 3).numpy()
        group = file.create_group("CapsNet")
        group.attrs["weight_names"] = [name.encode() for name in weights]
        for name, value in weights.items():
            group[name] = value.numpy()
    kinds = {kind: [w for name, w in weights.items() if name.endswith(f"/{kind}:0")] for kind in
             ("kernel", "bias", "gamma", "beta", "moving_mean", "moving_variance")}

    def squash(x):
        norm = (x.square().sum(-1, keepdim=True) + 1e-20).sqrt()
        return (1 - torch.exp(-norm)) * x / norm

    def lengths(pixels):
        x = pixels.float() / 256
        for k in range(4):
            x = torch.nn.functional.conv2d(x, kinds["kernel"][k].permute(3, 2, 0, 1),
                                           kinds["bias"][k], stride=2 if k == 3 else 1).relu()
            x = torch.nn.functional.batch_norm(x, kinds["moving_mean"][k],
                                               kinds["moving_variance"][k], kinds["gamma"][k],
                                               kinds["beta"][k], eps=1e-3)
        x = (x * kinds["kernel"][4][:, :, 0].permute(2, 0, 1)).sum((2, 3)) + kinds["bias"][4]
        children = squash(x.reshape(len(x), -1, 8))  # [B, I, Din]
        votes = torch.einsum("bid,jide->bjie", children, weights["digit_caps/W:0"])
        agreement = torch.einsum("bjie,bjke->bji", votes, votes) / 4.0
        coupling = agreement.softmax(1) + weights["digit_caps/b:0"][..., 0]
        return squash(torch.einsum("bji,bjie->bje", coupling, votes)).norm(dim=-1)

    return lengths


def test_published_keras_weights_give_the_same_lengths(tmp_path):
    lengths = keras_network(tmp_path / "theirs.h5")
    remcaps.convert(tmp_path / "theirs.h5", tmp_path / "ours.safetensors", "mnist/eff-capsnet")
    network = remcaps.load(tmp_path / "ours.safetensors")
    pixels = torch.randint(0, 256, (6, 1, 28, 28), dtype=torch.uint8)
    assert network.architecture == "eff-capsnet"
    assert torch.allclose(network(pixels).lengths, lengths(pixels), atol=1e-5)


def test_what_cannot_be_converted_is_one_line_and_writes_nothing(tmp_path):
    out = tmp_path / "ours.safetensors"
    torch.save({"weight": torch.ones(3)}, tmp_path / "other.pt")
    (tmp_path / "damaged.pt").write_bytes(b"no network")
    (tmp_path / "damaged.h5").write_bytes(b"no network")
    torch.save(pathlib.PurePosixPath("code"), tmp_path / "code.pt")
    keras_network(tmp_path / "eff.h5")
    for source, recipe, message in [("missing.pt", "mnist/dr-capsnet", "no such file"),
                                    ("other.pt", "mnist/dr-capsnet", "not a network of REM"),
                                    ("damaged.pt", "mnist/dr-capsnet", "not a state_dict"),
                                    ("code.pt", "mnist/dr-capsnet", "not a state_dict"),
                                    ("damaged.h5", "mnist/eff-capsnet", "not weights of Keras"),
                                    ("eff.h5", "mnist/eff-capsnett", "did you mean"),
                                    ("eff.h5", "smallnorb/eff-capsnet", "expects"),
                                    ("eff.h5", "mnist/dr-capsnet", "conv_channels")]:
        with pytest.raises(remcaps.Error, match=message) as error:
            remcaps.convert(tmp_path / source, out, recipe)
        assert "\n" not in str(error.value) and not out.exists()
