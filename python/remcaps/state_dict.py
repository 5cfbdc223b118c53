"""state_dicts of PyTorch, read without torch.load().

torch.load() runs the code of a TorchScript archive, even with weights_only=True, and it trusts the
sizes that a file states."""

import collections
import os
import pickle
import zipfile

import torch

_TYPES = {"FloatStorage": torch.float32, "DoubleStorage": torch.float64,
          "HalfStorage": torch.float16, "BFloat16Storage": torch.bfloat16,
          "LongStorage": torch.int64, "IntStorage": torch.int32, "ShortStorage": torch.int16,
          "CharStorage": torch.int8, "ByteStorage": torch.uint8, "BoolStorage": torch.bool}


def read_state_dict(path):
    """The tensors by name in a file of torch.save(). ValueError if it holds anything else."""
    if not zipfile.is_zipfile(path):
        raise ValueError("no file of torch.save() of PyTorch 1.6 or newer")
    with zipfile.ZipFile(path) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1 or any(name.endswith("/constants.pkl") for name in archive.namelist()):
            raise ValueError("no file of torch.save(), or one of TorchScript")
        # torch.save() does not compress. zipfile unpacks more than the size that an entry states.
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise ValueError("it is compressed")
        if sum(entry.file_size for entry in archive.infolist()) > os.path.getsize(path):
            raise ValueError("it promises more bytes than it holds")
        with archive.open(pickles[0]) as file:
            state = _Reader(file, archive, pickles[0].removesuffix("data.pkl")).load()
    if not isinstance(state, dict) or not all(
            isinstance(name, str) and torch.is_tensor(t) for name, t in state.items()):
        raise ValueError("expected tensors by name")
    return state


def _tensor(storage, offset, size, stride, *_):
    numbers = [offset, *size, *stride]
    if not len(size) == len(stride) <= 64 or not all(
            type(n) is int and 0 <= n < 2**63 for n in numbers):
        raise ValueError("a tensor of an impossible shape")
    if 0 in size:  # the sizes of layers come from shapes, which nothing would limit
        raise ValueError("a tensor without numbers")
    count = 1
    for n in size:
        count *= n
    last = offset + sum((n - 1) * step for n, step in zip(size, stride))
    if count > len(storage) or last >= len(storage):
        raise ValueError("a tensor that is larger than its bytes")
    return storage.as_strided(size, stride, offset)


# The pickle module's reader in Python: a few bytes make the one in C take gigabytes for its memo.
class _Reader(pickle._Unpickler):
    """Knows tensors, parameters and plain containers; nothing else can be made or called."""

    def __init__(self, file, archive, folder):
        super().__init__(file)
        self._archive, self._folder, self._storages = archive, folder, {}

    def find_class(self, module, name):
        if module == "torch" and name in _TYPES:
            return _TYPES[name]
        known = {("collections", "OrderedDict"): _ordered,
                 ("torch._utils", "_rebuild_tensor_v2"): _tensor,
                 ("torch._utils", "_rebuild_parameter"): _parameter}
        if (module, name) not in known:
            raise ValueError(f"it wants {module}.{name}"[:100])
        return known[module, name]

    def persistent_load(self, saved):
        _, kind, key, *_ = saved
        if type(key) is not str:
            raise ValueError("a tensor whose bytes have no name")
        if key not in self._storages:
            values = bytearray(self._archive.read(self._folder + "data/" + key))
            self._storages[key] = (torch.frombuffer(values, dtype=kind) if values
                                   else torch.empty(0, dtype=kind))
        return self._storages[key]

    # Only strings are keys: the hash of a tuple of tuples of tuples can take for ever.
    def _set_item(self):
        value, key = self.stack.pop(), self.stack.pop()
        self._set(self.stack[-1], [key, value])

    def _set_items(self):
        items = self.pop_mark()
        self._set(self.stack[-1], items)

    @staticmethod
    def _set(target, items):
        if not all(type(key) is str for key in items[::2]):
            raise ValueError("expected tensors by name")
        target.update(zip(items[::2], items[1::2]))

    def _refuse(self):
        raise ValueError("it has what no state_dict has")

    dispatch = {**pickle._Unpickler.dispatch,
                pickle.SETITEM[0]: _set_item, pickle.SETITEMS[0]: _set_items,
                # These hash what they are given, or take memory for a length before they read.
                pickle.DICT[0]: _refuse, pickle.EMPTY_SET[0]: _refuse,
                pickle.FROZENSET[0]: _refuse, pickle.ADDITEMS[0]: _refuse,
                pickle.BYTEARRAY8[0]: _refuse,
                # An object's own attributes; a state_dict has versions of modules there.
                pickle.BUILD[0]: lambda self: self.stack.pop()}


def _ordered():
    return collections.OrderedDict()


def _parameter(values, *_):
    return values
