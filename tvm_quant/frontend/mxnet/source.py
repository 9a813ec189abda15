"""What the user passes as a network of MXNet: files, a Symbol, a Gluon block.

All of it becomes one `Network`: the JSON text of the graph, the parameters, the inputs.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tvm_quant.errors import FrontendError
from tvm_quant.frontend.base import Request, first_line, has_suffix
from tvm_quant.frontend.mxnet.params import Array, read_params, without_prefixes
from tvm_quant.frontend.mxnet.symbol import Graph, parse_symbol

Shape = tuple[int, ...]

#: Between the name of a network and the ending of its files.
SYMBOL_SUFFIX, PARAMS_PATTERN = "-symbol", "-[0-9][0-9][0-9][0-9].params"


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network before conversion.

    Attributes:
        graph: its nodes.
        params: {variable: array}; variables that are not named here are inputs.
        shapes: {input: shape}, as far as the user gave them.
        dtypes: {input: type}, likewise.
    """

    graph: Graph
    params: Mapping[str, Array]
    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, str] = field(default_factory=dict)


def is_mxnet(source: object) -> bool:
    """Whether this is a source that `open_source` takes."""
    if isinstance(source, tuple):
        return len(source) in (2, 3) and (has_suffix(source[0], ".json") or _is_symbol(source[0]))
    return has_suffix(source, ".json") or _is_block(source)


def open_source(request: Request) -> Network:
    """Graph, parameters and shapes of what the user passed.

    Raises:
        FrontendError: files that are missing or damaged, objects that do not belong together.
    """
    source = request.source
    if _is_block(source):
        return _open_block(request)
    given = source if isinstance(source, tuple) else (source, _params_beside(Path(str(source))))
    if has_suffix(given[0], ".json"):
        text, where = _read_text(Path(given[0])), str(given[0])
    else:
        text, where = given[0].tojson(), f"Symbol '{given[0].name}'"
    graph = parse_symbol(text, where)
    params: dict[str, Array] = {}
    for part in given[1:]:
        params |= _params(part)
    return _network(graph, params, request)


def _params_beside(path: Path) -> Path:
    """The parameters of the highest epoch, as checkpoints are named."""
    prefix = path.stem.removesuffix(SYMBOL_SUFFIX)
    found = sorted(path.parent.glob(f"{prefix}{PARAMS_PATTERN}"))
    if not found:
        raise FrontendError(
            f"No parameters beside {path}: expected {prefix}-0000.params or another epoch. Pass "
            f'both files: load(("{path.name}", "NAME.params")).'
        )
    return found[-1]


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FrontendError(f"Cannot read the symbol {path}: {first_line(error)}.") from error


def _params(part: Any) -> dict[str, Array]:
    """Of a file, or of a mapping from names to arrays of MXNet or NumPy."""
    if isinstance(part, str | Path):
        return read_params(Path(part))
    if not isinstance(part, Mapping):
        raise FrontendError(
            f"The parameters are a {type(part).__name__}; expected the path of a .params file or a "
            "mapping from names to arrays."
        )
    return without_prefixes({str(name): _as_numpy(str(name), a) for name, a in part.items()})


def _as_numpy(name: str, value: Any) -> Array:
    array = np.asarray(value.asnumpy() if hasattr(value, "asnumpy") else value)
    if array.dtype == object:
        raise FrontendError(f"Parameter '{name}' is a {type(value).__name__}; expected an array.")
    return array


def _network(graph: Graph, params: Mapping[str, Array], request: Request) -> Network:
    names = [node.name for _, node in graph.needed() if node.is_variable]
    inputs = [name for name in names if name not in params]
    shapes = {name: tuple(map(int, shape)) for name, shape in (request.shapes or {}).items()}
    _check_names(shapes, inputs)
    examples = _arrays(request.example_inputs)
    if not examples:
        return Network(graph=graph, params=params, shapes=shapes)
    if len(examples) != len(inputs):
        raise FrontendError(
            f"There are {len(examples)} example inputs for the {len(inputs)} inputs of the "
            f"network: {', '.join(inputs)}. Parameters may be missing."
        )
    pairs = dict(zip(inputs, examples, strict=True))
    return Network(
        graph=graph,
        params=params,
        shapes={**{name: array.shape for name, array in pairs.items()}, **shapes},
        dtypes={name: str(array.dtype) for name, array in pairs.items()},
    )


def _check_names(shapes: Mapping[str, Shape], inputs: Sequence[str]) -> None:
    for name in shapes:
        if name in inputs:
            continue
        close = difflib.get_close_matches(name, inputs, 1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise FrontendError(
            f"'shapes' names '{name}', which is no input of the network; its inputs are "
            f"{', '.join(inputs) or 'none'}.{hint}"
        )


def _arrays(examples: Sequence[Any] | None) -> list[Array]:
    """Example inputs; of float64 they count as float32, as for `mx.nd.array`."""
    found = [_as_numpy(f"example input {i}", array) for i, array in enumerate(examples or ())]
    return [array.astype("float32") if array.dtype == "float64" else array for array in found]


# Objects of MXNet -------------------------------------------------------------


def _is_symbol(source: object) -> bool:
    mxnet = sys.modules.get("mxnet")  # whoever holds an object of mxnet has imported it
    return mxnet is not None and isinstance(source, mxnet.sym.Symbol)


def _is_block(source: object) -> bool:
    mxnet = sys.modules.get("mxnet")
    return mxnet is not None and isinstance(source, mxnet.gluon.Block)


def _open_block(request: Request) -> Network:
    """Trace a block with symbols; parameters whose shapes are open get them by one run on zeros."""
    import mxnet

    block: Any = request.source
    examples, shapes = _arrays(request.example_inputs), request.shapes or {}
    if not isinstance(block, mxnet.gluon.HybridBlock):
        raise FrontendError(
            f"The block '{block.name}' is no HybridBlock, so it has no graph. Derive it from "
            "gluon.HybridBlock (nn.HybridSequential for nn.Sequential)."
        )
    if not examples and not shapes:
        raise FrontendError(
            f"The block '{block.name}' does not say the shapes of its inputs. Give them: "
            'load(block, shapes={"data": (1, 3, 224, 224)}), or example_inputs=[...].'
        )
    names = list(shapes) or [
        f"data{i}" if len(examples) > 1 else "data" for i in range(len(examples))
    ]
    try:
        symbol = block(*[mxnet.sym.var(name) for name in names])
    except Exception as error:
        raise FrontendError(
            f"The block '{block.name}' cannot be traced with symbols {', '.join(names)}: "
            f"{first_line(error)}"
        ) from error
    if isinstance(symbol, list | tuple):
        symbol = mxnet.sym.Group(_flat(symbol))
    zeros = [mxnet.nd.zeros(tuple(shape)) for shape in shapes.values()]
    _settle(block, zeros or [mxnet.nd.array(array) for array in examples])
    params = {name: param.data().asnumpy() for name, param in block.collect_params().items()}
    graph = parse_symbol(symbol.tojson(), f"block '{block.name}'")
    return _network(graph, params, request)


def _flat(results: Sequence[Any]) -> list[Any]:
    """The symbols in lists of lists."""
    nested = [_flat(one) if isinstance(one, list | tuple) else [one] for one in results]
    return [symbol for part in nested for symbol in part]


def _settle(block: Any, inputs: list[Any]) -> None:
    """Give values to parameters that wait for the first data.

    Raises:
        FrontendError: parameters were never initialized.
    """
    import mxnet

    try:
        for param in block.collect_params().values():
            param.data()
    except mxnet.gluon.parameter.DeferredInitializationError:
        block(*inputs)
    except RuntimeError as error:
        raise FrontendError(
            f"Parameters of the block '{block.name}' have no values: {first_line(error)}. Call "
            "initialize() or load_parameters() first."
        ) from error
