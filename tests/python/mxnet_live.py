"""MXNet itself, where it is installed."""

import os
from typing import Any

import numpy as np
import pytest

# Its fusion for oneDNN changes results.
os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"


def installed() -> Any:
    """The module; skips the test where there is none, or a NumPy with which it does not work."""
    try:
        import mxnet
    except (ImportError, AttributeError) as error:
        pytest.skip(f"needs MXNet 1.9.1 (pip install 'tvm-quant[mxnet]'): {error}")
    return mxnet


def forward(symbol: Any, params: dict[str, Any], **inputs: np.ndarray) -> list[np.ndarray]:
    """What MXNet computes, operator by operator.

    Args:
        params: arguments and statistics by name.
    """
    mx = installed()
    given = {**params, **{name: mx.nd.array(array) for name, array in inputs.items()}}
    arguments = {name: given[name] for name in symbol.list_arguments()}
    statistics = {name: given[name] for name in symbol.list_auxiliary_states()}
    bound = symbol.bind(mx.cpu(), arguments, aux_states=statistics, grad_req="null")
    return [output.asnumpy() for output in bound.forward(is_train=False)]


def values(block: Any) -> dict[str, Any]:
    """The parameters of a block by name."""
    return {name: param.data() for name, param in block.collect_params().items()}
