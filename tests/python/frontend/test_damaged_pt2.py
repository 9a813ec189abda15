"""Saved programs with damage: an error of ours, or a network that is one."""

import copy
import json
import random
import warnings
import zipfile

import pytest

torch = pytest.importorskip("torch", reason="reads programs of PyTorch")
from torch import nn  # noqa: E402

from tvm_quant import load, quantize  # noqa: E402
from tvm_quant.errors import TvmQuantError  # noqa: E402
from tvm_quant.frontend.pytorch.quantized import register_operators  # noqa: E402

register_operators()
OPS = torch.ops.quantized_decomposed
WRONG = [-1, 0, 10**12, 1e300, float("nan"), None, "", "x", [], {}, True, 77]


class Quantized(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.ones((4, 3, 3, 3), dtype=torch.int8))

    def forward(self, x):
        x = both(x, 0.03, 5, -128, 127)
        weight = OPS.dequantize_per_tensor.default(self.weight, 0.01, 0, -127, 127, torch.int8)
        x = torch.relu(nn.functional.conv2d(x, weight, padding=1)).flatten(1)
        return both(x, 0.1, 0, -128, 127)


def both(x, *grid):
    codes = OPS.quantize_per_tensor.default(x, *grid, torch.int8)
    return OPS.dequantize_per_tensor.default(codes, *grid, torch.int8)


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    """What a saved program consists of, {name in the archive: bytes}."""
    path = tmp_path_factory.mktemp("program") / "good.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(Quantized(), (torch.zeros(1, 3, 6, 6),)), path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def leaves(value, path=()):
    """Paths of all values of a JSON document that hold no others."""
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in children:
        if isinstance(child, dict | list) and child:
            yield from leaves(child, (*path, key))
        else:
            yield (*path, key)


def damaged_description(members, rng):
    (name,) = [name for name in members if name.endswith("models/model.json")]
    document = copy.deepcopy(json.loads(members[name]))
    *path, last = rng.choice(list(leaves(document)))
    holder = document
    for key in path:
        holder = holder[key]
    if rng.random() < 0.2:
        del holder[last]
    else:
        holder[last] = rng.choice(WRONG)
    return members | {name: json.dumps(document).encode()}


def damaged_bytes(members, rng):
    name = rng.choice([name for name, data in members.items() if data])
    data = bytearray(members[name])
    if rng.random() < 0.5:
        data = data[: rng.randrange(len(data))]
    else:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return members | {name: bytes(data)}


@pytest.mark.parametrize("damage", [damaged_description, damaged_bytes])
@pytest.mark.parametrize("seed", range(4))
def test_damage_is_an_error_of_ours(members, damage, seed, tmp_path):
    rng = random.Random(seed)
    refused = 0
    for _ in range(12):
        path = tmp_path / "damaged.pt2"
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in damage(members, rng).items():
                archive.writestr(name, data)
        try:
            quantize(*load(path))
        except TvmQuantError:
            refused += 1
    assert refused
