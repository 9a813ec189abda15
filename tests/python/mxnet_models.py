"""Networks of MXNet, written by hand: no MXNet is needed to make or to read them."""

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import IRModule

from plain_tvm import run
from tvm_quant.frontend.mxnet.importer import import_network
from tvm_quant.frontend.mxnet.params import DTYPES, V1, V2, V3
from tvm_quant.frontend.mxnet.source import Network
from tvm_quant.frontend.mxnet.symbol import parse_symbol

_NUMBERS = {name: number for number, name in DTYPES.items()}

#: Before the first magic number.
OLDEST = 0


def node(operator: str, inputs: Sequence[str], name: str = "y", **attributes: Any) -> dict:
    """A node of the JSON text; inputs by name, "name:1" is the second result."""
    return {
        "op": operator,
        "name": name,
        "inputs": list(inputs),
        "attrs": {key: str(value) for key, value in attributes.items()},
    }


def symbol(nodes: Sequence[dict], heads: Sequence[str] | None = None, key: str = "attrs") -> str:
    """The JSON text of nodes; names that no node has become variables."""
    made = {item["name"] for item in nodes}
    read = [entry.partition(":")[0] for item in nodes for entry in item["inputs"]]
    variables = [name for name in dict.fromkeys(read) if name not in made]
    ordered = [{"op": "null", "name": name, "inputs": []} for name in variables]
    ordered += [{**item, key: item["attrs"]} for item in nodes]
    place = {item["name"]: index for index, item in enumerate(ordered)}
    if key != "attrs":
        ordered = [{k: v for k, v in item.items() if k != "attrs"} for item in ordered]

    def entry(text: str) -> list[int]:
        name, _, output = text.partition(":")
        return [place[name], int(output or 0), 0]

    for item in ordered:
        item["inputs"] = [entry(text) for text in item["inputs"]]
    ends = [entry(text) for text in heads or [nodes[-1]["name"]]]
    return json.dumps({"nodes": ordered, "arg_nodes": [], "heads": ends})


def imported(
    nodes: Sequence[dict],
    inputs: Mapping[str, Sequence[int]],
    params: Mapping[str, np.ndarray] | None = None,
    heads: Sequence[str] | None = None,
) -> IRModule:
    """The Relax module of nodes."""
    graph = parse_symbol(symbol(nodes, heads), "the test")
    shapes = {name: tuple(shape) for name, shape in inputs.items()}
    return import_network(Network(graph=graph, params=params or {}, shapes=shapes))


def computed(
    nodes: Sequence[dict],
    inputs: Mapping[str, np.ndarray],
    params: Mapping[str, np.ndarray] | None = None,
    heads: Sequence[str] | None = None,
) -> list[np.ndarray]:
    """The results of nodes on arrays, in the order of `inputs` as the nodes read them."""
    mod = imported(nodes, {name: a.shape for name, a in inputs.items()}, params, heads)
    return run(mod, *(inputs[str(param.name)] for param in mod["main"].params))


def one(operator: str, *arrays: np.ndarray, **attributes: Any) -> np.ndarray:
    """The result of one operator; the first array is computed at run time, the rest parameters."""
    names = [f"p{index}" for index in range(len(arrays))]
    params = dict(zip(names[1:], arrays[1:], strict=True))
    return computed([node(operator, names, **attributes)], {"p0": arrays[0]}, params)[0]


def params_bytes(arrays: Mapping[str, np.ndarray], magic: int = V2, storage: int = 0) -> bytes:
    """A `.params` file."""
    parts = [struct.pack("<QQQ", 0x112, 0, len(arrays))]
    parts += [_array_bytes(array, magic, storage) for array in arrays.values()]
    parts.append(struct.pack("<Q", len(arrays)))
    for name in arrays:
        parts.append(struct.pack("<Q", len(name.encode())) + name.encode())
    return b"".join(parts)


def _array_bytes(array: np.ndarray, magic: int, storage: int) -> bytes:
    head = b"" if magic == OLDEST else struct.pack("<I", magic)
    if magic in (V2, V3):
        head += struct.pack("<i", storage)
    size = "I" if magic == OLDEST else "q"
    shape = struct.pack(f"<I{array.ndim}{size}", array.ndim, *array.shape)
    kind = struct.pack("<iii", 1, 0, _NUMBERS[str(array.dtype)])
    return head + shape + kind + np.ascontiguousarray(array).tobytes()


__all__ = [
    "OLDEST",
    "V1",
    "V2",
    "V3",
    "computed",
    "imported",
    "node",
    "one",
    "params_bytes",
    "symbol",
]
