import pytest
import torch


@pytest.fixture(autouse=True)
def repeatable():
    torch.manual_seed(7)
    torch.set_num_threads(1)  # most tensors of the tests are tiny
