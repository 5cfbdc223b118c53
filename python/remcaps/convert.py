"""Networks that others trained, as weights files of remcaps."""

import os

import torch

from remcaps import _remcaps
from remcaps._call import assigned
from remcaps._remcaps import Error, UsageError
from remcaps.state_dict import read_state_dict

# The names of the REM authors -> ours. Those of DR-CapsNet, gamma-CapsNet and DeepCaps in turn.
_RENAMES = [
    ("primaryCaps.caps_poses", "primary.conv"),
    ("fcCaps.routing_bias", "hidden.bias"),
    ("fcCaps", "hidden"),
    ("classCaps.routing_bias", "class.bias"),
    ("classCaps.weight", "class.weight"),
    ("classCaps.W", "class.weight"),
    ("classCaps.b", "class.bias"),
    ("conv2dcaps_", "caps"),
    ("conv3dcaps_31.conv_3d", "caps31.conv"),
]


def convert(source, out, recipe, **overrides):
    """Makes a weights file, which every command of remcaps takes, of a network of others.

    source: a .pt or .pth file, the state_dict of a DR-CapsNet, gamma-CapsNet or DeepCaps of REM's
        authors; or an .h5 file, the weights that the authors of Efficient-CapsNet publish for MNIST
        and smallNORB (its decoder is left out). Pickled code is not run.
    out: the file to write, *.safetensors.
    recipe: the recipe of the same network and data set ("mnist/dr-capsnet"). Sizes of layers come
        from the source.
    overrides: keys of the recipe, as in train(): ``model={"conv_stride": 2}``.
    """
    source = os.fspath(source)
    if not os.path.isfile(source):
        raise Error(f"{source}: no such file")
    if source.endswith((".pt", ".pth")):
        kind, read = "a state_dict", _from_state_dict
    elif source.endswith((".h5", ".hdf5")):
        import h5py  # noqa: F401  its absence says nothing about the file

        kind, read = "weights of Keras", _from_keras
    else:
        raise UsageError(f"{source}: unknown kind of file; expected .pt, .pth or .h5")
    try:
        tensors, options = read(source)
    except Error:
        raise
    except Exception as error:  # readers of damaged files raise anything
        raise Error(f"{source}: not {kind}: {_line(error)}") from None
    given = assigned(options) + assigned(overrides)  # the last one counts
    _remcaps.save_network(os.fspath(out), source, os.fspath(recipe), given, tensors)


def _from_state_dict(source):
    state = read_state_dict(source)
    tensors = {_our_name(name): tensor for name, tensor in state.items()}
    if "caps31.conv.weight" in tensors:
        return tensors, {}
    try:
        conv, primary = state["conv1.weight"], state["primaryCaps.caps_poses.weight"]
        top = state["classCaps.weight"]  # [types, h, w, J, Dout, Din]
        first = state.get("fcCaps.weight", top)
        model = {"conv_channels": conv.shape[0], "conv_kernel": conv.shape[2],
                 "primary_types": first.shape[0], "primary_dim": first.shape[5],
                 "primary_kernel": primary.shape[2], "class_dim": top.shape[4]}
    except (KeyError, IndexError) as error:
        raise Error(f"{source}: not a network of REM's authors: {error}") from None
    if "decoder.fc1.weight" in state:
        hidden = [state[f"decoder.fc{k}.weight"].shape[0] for k in (1, 2)]
        model.update(decoder="fc", decoder_hidden=hidden)
    return tensors, {"model": model}


def _from_keras(source):
    import h5py

    with h5py.File(source, "r") as file:
        group = next((g for g in file.values() if _named(g, "/W:0", 4)), None)
        if group is None:
            raise Error(f"{source}: not an Efficient-CapsNet: it has no capsule layer W")
        kernels, (weight,) = _named(group, "/kernel:0", 4), _named(group, "/W:0", 4)
        (prior,) = _named(group, "/b:0", 3)
        biases, scales, shifts, means, variances = (
            _named(group, end, 1) for end in ("/bias:0", "/gamma:0", "/beta:0", "/moving_mean:0",
                                              "/moving_variance:0"))

    tensors = {}
    layers = [f"conv{k + 1}" for k in range(len(kernels) - 1)] + ["primary.conv"]
    for layer, kernel, bias in zip(layers, kernels, biases):
        tensors[f"{layer}.weight"] = kernel.permute(3, 2, 0, 1)  # from [h, w, in, out]
        tensors[f"{layer}.bias"] = bias
    for k, (scale, shift) in enumerate(zip(scales, shifts)):
        tensors.update({f"norm{k + 1}.weight": scale, f"norm{k + 1}.bias": shift})
    for k, (mean, variance) in enumerate(zip(means, variances)):
        tensors.update({f"norm{k + 1}.running_mean": mean, f"norm{k + 1}.running_var": variance,
                        f"norm{k + 1}.num_batches_tracked": torch.tensor(0)})
    tensors["class.weight"] = weight.permute(1, 0, 3, 2)  # from [J, I, Din, Dout]
    tensors["class.prior"] = prior[..., 0].t()  # from [J, I, 1]
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}

    model = {"conv_channels": [kernel.shape[3] for kernel in kernels[:-1]],
             "conv_kernels": [kernel.shape[0] for kernel in kernels[:-1]],
             "norm": "batch" if means else "instance", "norm_epsilon": 1e-3,
             "primary_dim": weight.shape[2], "class_dim": weight.shape[3]}
    # Pixels as they were trained on: those of MNIST were divided by 256.
    augment = {"mean": [0.0], "std": [256 / 255]} if means else {"antialias": False}
    return tensors, {"model": model, "dataset": {"augment": augment}}


def _named(group, end, dimensions):
    """The weights of a Keras model whose name ends so, in the order of its layers."""
    names = [name.decode() if isinstance(name, bytes) else name
             for name in group.attrs.get("weight_names", [])]
    found = [group[name] for name in names if name.endswith(end)]
    for values in found:
        if values.ndim != dimensions or values.nbytes > os.path.getsize(group.file.filename):
            raise ValueError(f"{values.name} is {values.shape}; expected {dimensions} dimensions, "
                             "and no more numbers than the file can hold")
    return [torch.from_numpy(values[()]) for values in found]


def _our_name(name):
    for published, ours in _RENAMES:
        if name.startswith(published):
            return ours + name[len(published):]
    return name


def _line(error):
    line = (str(error) or type(error).__name__).splitlines()[0]
    return "".join(c if c.isprintable() else "?" for c in line)
