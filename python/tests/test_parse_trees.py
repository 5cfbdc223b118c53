import collections
import math
import threading

import numpy
import pytest
import torch

import remcaps


def test_quantize_takes_and_gives_tensors_and_arrays():
    values = [0.0, 0.049, 0.051, 0.5, 1.0]
    expected = [0.0, 0.0, 0.1, 0.5, 1.0]
    assert torch.allclose(remcaps.quantize(torch.tensor(values)), torch.tensor(expected))
    array = remcaps.quantize(numpy.array(values, dtype=numpy.float32), 11)
    assert isinstance(array, numpy.ndarray)
    numpy.testing.assert_allclose(array, expected, atol=1e-6)
    with pytest.raises(ValueError, match="levels: 300"):
        remcaps.quantize(array, 300)


@pytest.mark.parametrize("levels", [5, 21])
def test_entropy_keys_and_trees_equal_a_count_by_hand(levels):
    generator = numpy.random.default_rng(3)
    # Few children and coarse couplings, so that trees repeat.
    couplings = generator.choice([0.1, 0.5, 0.9], size=(300, 3, 4)).astype(numpy.float32)
    predictions = generator.integers(0, 3, size=300)  # class 3 is never predicted
    trees = remcaps.ParseTrees(levels)
    for begin in range(0, 300, 70):
        trees.add(couplings[begin:begin + 70], predictions[begin:begin + 70])

    counts = [collections.Counter() for _ in range(4)]
    rounded = numpy.rint(couplings * (levels - 1)).astype(int)
    for image, j in enumerate(predictions):
        counts[j][tuple(rounded[image, :, j])] += 1
    entropies = [-sum(n / c.total() * math.log2(n / c.total()) for n in c.values()) for c in counts]
    numpy.testing.assert_allclose(trees.entropy_per_class, entropies, atol=1e-9)
    assert trees.keys_per_class.tolist() == [len(c) for c in counts]
    assert trees.samples_per_class.tolist() == [c.total() for c in counts]
    for j in range(4):
        found = trees.most_frequent(j, limit=1000)
        assert {tuple(tree.levels): tree.count for tree in found} == dict(counts[j])
        assert [tree.count for tree in found] == sorted((t.count for t in found), reverse=True)
    assert len(trees.most_frequent(0, limit=2)) == 2
    numpy.testing.assert_allclose(trees.levels, numpy.linspace(0, 1, levels), atol=1e-6)


def test_several_threads_add_to_one_dictionary():
    generator = numpy.random.default_rng(4)
    couplings = torch.tensor(generator.random((400, 40, 3), dtype=numpy.float32))
    predictions = torch.tensor(generator.integers(0, 3, size=400))
    trees = remcaps.ParseTrees(11)
    trees.add(couplings[:1], predictions[:1])

    def add(first):
        for image in range(first, 400, 4):
            trees.add(couplings[image:image + 1], predictions[image:image + 1])
            trees.entropy_per_class
    threads = [threading.Thread(target=add, args=(first,)) for first in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trees.samples_per_class.sum() == 400


def test_wrong_input_is_an_error_and_counts_nothing():
    trees = remcaps.ParseTrees()
    assert repr(trees) == "remcaps.ParseTrees(levels=11, no images)"
    assert "no images" in trees._repr_html_()
    with pytest.raises(remcaps.Error, match="no couplings were added yet"):
        trees.entropy
    trees.add(torch.rand(2, 5, 3), torch.tensor([0, 1]))
    with pytest.raises(remcaps.Error, match=r"the first batch had \[B, 5, 3\]"):
        trees.add(torch.rand(2, 6, 3), torch.tensor([0, 1]))
    with pytest.raises(remcaps.Error, match="outside 0 to 2"):
        trees.add(torch.rand(2, 5, 3), torch.tensor([0, 3]))
    with pytest.raises(remcaps.Error, match=r"expected \[B, I, J\] and \[B\]"):
        trees.add(torch.rand(2, 5), torch.tensor([0, 1]))
    with pytest.raises(TypeError, match="couplings is of type NoneType"):
        trees.add(None, torch.tensor([0]))
    assert trees.samples_per_class.tolist() == [1, 1, 0]
    assert repr(trees) == "remcaps.ParseTrees(levels=11, 2 images, 0.00 bits)"
