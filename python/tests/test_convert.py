import json
import pathlib
import pickle
import struct
import zipfile

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


def test_layers_larger_than_the_file_are_refused_before_they_are_made(tmp_path):
    torch.save({"conv1.weight": torch.zeros(2000, 1, 1, 1),
                "primaryCaps.caps_poses.weight": torch.zeros(8, 1, 1, 1),
                "classCaps.weight": torch.zeros(20000, 1, 1, 1, 2, 8)}, tmp_path / "wide.pt")
    with pytest.raises(remcaps.Error, match="wide.pt: holds 322008 numbers; primary of its dr-cap"):
        remcaps.convert(tmp_path / "wide.pt", tmp_path / "ours.safetensors", "mnist/dr-capsnet")


class Call:
    """Pickled, it wants a function to be called."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


class Sizes:
    """Pickled, a tensor of other sizes than its bytes."""

    def __init__(self, size, stride, offset=0):
        self.call = torch._utils._rebuild_tensor_v2, (torch.ones(8).storage(), offset, size, stride,
                                                      False, {})

    def __reduce__(self):
        return self.call


def test_hostile_pickles_call_nothing_and_take_no_memory(tmp_path):
    source, witness = tmp_path / "hostile.pt", tmp_path / "witness"

    def refused(message):
        with pytest.raises(remcaps.Error, match=message) as error:
            remcaps.convert(source, tmp_path / "ours.safetensors", "mnist/dr-capsnet")
        assert "\n" not in str(error.value) and not witness.exists()

    torch.save({"weight": Call(open, str(witness), "w")}, source)
    refused("not a state_dict: it wants io.open")
    for size, stride, offset in [((2**40,), (1,), 0), ((2**40,), (0,), 0), ((2,), (2**63,), 0),
                                 ((8,), (1,), 1), ((-1,), (1,), 0), ((4, 4), (1,), 0),
                                 ((2**32, 2**32), (2**32, 1), 0)]:
        torch.save({"weight": Sizes(size, stride, offset)}, source)
        refused("not a state_dict: a tensor")
    torch.save([torch.ones(3)], source)
    refused("expected tensors by name")
    torch.save({3: torch.ones(3)}, source)
    refused("expected tensors by name")
    torch.save({"weight": torch.ones(3)}, source, _use_new_zipfile_serialization=False)
    refused("PyTorch 1.6 or newer")

    whole = tmp_path / "whole.pt"
    torch.save({"weight": torch.ones(300)}, whole)
    for size in (1, 50, 300, 900, 1500):
        source.write_bytes(whole.read_bytes()[:size])
        refused("not a state_dict")

    def packed(data, method=zipfile.ZIP_STORED, **records):
        with zipfile.ZipFile(source, "w", method) as archive:
            archive.writestr("a/data.pkl", data)
            for name, value in records.items():
                archive.writestr(f"a/{name}.pkl", value)

    packed(bytes(10**7), zipfile.ZIP_DEFLATED)
    refused("it is compressed")
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("a/data.pkl", b"")
        archive.writestr("a/data/0", bytes(1000))
        archive.filelist.append(archive.filelist[-1])  # two entries, the same bytes
    refused("it promises more bytes than it holds")
    packed(b"\x80\x02}r\xff\xff\xff\x7fq\x00.")  # a memo of two thousand million places
    refused("not a network of REM's authors")
    for wrong in (b"", b"\x80\x02", b".", b"\x80\x02(cposix\nsystem\n\x8c\x01xR.",
                  b"\x8d" + b"\xff" * 8):
        packed(wrong)
        refused("not a state_dict")
    packed(pickle.dumps({}), constants="")
    refused("TorchScript")

    packed(b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".")  # a bytearray
    refused("it has what no state_dict has")
    pairs = b"K\x01" + b"2\x86" * 60  # t = (t, t), 60 times: its hash takes 2**60 steps
    ordered = b"ccollections\nOrderedDict\n"
    for wrong in (b"}" + pairs + b"Ns.", b"}(" + pairs + b"Nu.", ordered + b")R" + pairs + b"Ns.",
                  ordered + b"]" + pairs + b"N\x86a\x85R.", b"(" + pairs + b"Nd.",
                  b"\x8f(" + pairs + b"\x90.", b"(" + pairs + b"\x91.",
                  b"(Nctorch\nFloatStorage\n" + pairs + b"tQ."):
        packed(b"\x80\x04" + wrong)
        refused("not a state_dict")
    torch.save({"weight": torch.empty(2**16, 0, 9, 9)}, source)
    refused("a tensor without numbers")
    torch.save({"weight": Sizes((2**40, 0), (1, 1))}, source)
    refused("a tensor without numbers")
    torch.save({"weight": Sizes((1,) * 65, (1,) * 65)}, source)
    refused("a tensor of an impossible shape")


def test_torchscript_is_not_run(tmp_path):
    witness = tmp_path / "witness"

    class Module(torch.nn.Module):
        def __init__(self, path: str):
            super().__init__()
            self.path = path

        @torch.jit.export
        def __getstate__(self):
            return self.path, self.training

        @torch.jit.export
        def __setstate__(self, state: tuple[str, bool]):
            self.path, self.training = state
            torch.save(torch.ones(1), self.path)

        def forward(self, x):
            return x

    script = torch.jit.script(Module(str(witness)))
    script.save(str(tmp_path / "script.pt"))
    witness.unlink(missing_ok=True)  # saving tries the state, too
    with pytest.raises(remcaps.Error, match="TorchScript"):
        remcaps.convert(tmp_path / "script.pt", tmp_path / "ours.safetensors", "mnist/dr-capsnet")
    assert not witness.exists()
    torch.jit.load(tmp_path / "script.pt")  # the control: it is such a file
    assert witness.exists()


def test_hostile_keras_files_are_one_line(tmp_path):
    h5py = pytest.importorskip("h5py")
    keras_network(tmp_path / "whole.h5")
    whole = (tmp_path / "whole.h5").read_bytes()
    source = tmp_path / "hostile.h5"

    def refused(message):
        with pytest.raises(remcaps.Error, match=message) as error:
            remcaps.convert(source, tmp_path / "ours.safetensors", "mnist/eff-capsnet")
        assert "\n" not in str(error.value)

    for size in (0, 1, 100, 1000, len(whole) // 2, len(whole) - 1):
        source.write_bytes(whole[:size])
        refused("not weights of Keras")

    def changed(name, change):
        source.write_bytes(whole)
        with h5py.File(source, "a") as file:
            del file["CapsNet"][name]
            change(file["CapsNet"], name)

    for name, shape, kind, message in [
            ("digit_caps/W:0", (2**10,) * 4, "f", "no more numbers than the file can hold"),
            ("digit_caps/b:0", (3,), "f", "expected 3 dimensions"),
            ("digit_caps/b:0", (10, 2, 0), "f", "not weights of Keras"),
            ("conv2d/kernel:0", (5, 5, 1, 2), "S3", "not weights of Keras")]:
        changed(name, lambda group, name: group.create_dataset(name, shape, kind))
        refused(message)
    changed("conv2d/kernel:0", lambda group, name: group.create_group(name))
    refused("not weights of Keras")
    changed("conv2d/kernel:0", lambda group, name: None)
    refused("not weights of Keras")
    assert not (tmp_path / "ours.safetensors").exists()
