"""Values for the parameters of a network that nobody trained, by the names of the parameters.

>>> weight = np.zeros((2, 3), "float32")
>>> Constant(0.5)("fc1_weight", weight)
>>> weight
array([[0.5, 0.5, 0.5],
       [0.5, 0.5, 0.5]], dtype=float32)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm.runtime import Tensor

from tvm_quant.errors import FrontendError
from tvm_quant.ir import TensorInfo, io_signature
from tvm_relay.expr import Expr
from tvm_relay.module import Module
from tvm_relay.to_relax import to_relax

Array = npt.NDArray[Any]

#: What is an input: everything else gets values.
_INPUT = "data"


class Initializer:
    """Fills a parameter by what its name ends in; subclasses say what a weight is."""

    def __call__(self, desc: str, arr: Array) -> None:
        """Fill `arr`, of any shape, the parameter `desc`.

        Raises:
            FrontendError: the name tells no role.
        """
        for ending, fill in _ROLES.items():
            if desc.endswith(ending):
                getattr(self, fill)(desc, arr)
                return
        raise FrontendError(
            f"No initial value for the parameter '{desc}': its name ends in none of "
            f"{list(_ROLES)}. Rename it; or, if it is the input, call it '{_INPUT}'."
        )

    def _init_weight(self, name: str, arr: Array) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no _init_weight")

    def _init_zero(self, _name: str, arr: Array) -> None:
        arr[:] = 0

    def _init_one(self, _name: str, arr: Array) -> None:
        arr[:] = 1

    _init_bias = _init_beta = _init_mean = _init_zero
    _init_gamma = _init_var = _init_one


#: End of a name: the method that fills such parameters.
_ROLES = {
    "weight": "_init_weight",
    "bias": "_init_bias",
    "gamma": "_init_gamma",
    "beta": "_init_beta",
    "mean": "_init_mean",
    "var": "_init_var",
}


class Xavier(Initializer):
    """Uniform weights in +-sqrt(magnitude / n), n connections a unit; depthwise ones have few.

    Args:
        rnd_type: uniform.
        factor_type: n is the number of inputs ("in"), of outputs ("out"), or the mean ("avg").
        magnitude: > 0; 3 gives the variance 1 / n.

    Source: Glorot and Bengio, AISTATS 2010, section 4.2.1.
    """

    def __init__(
        self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3
    ) -> None:
        if rnd_type != "uniform" or factor_type not in ("in", "out", "avg"):
            raise FrontendError(
                f"Xavier(rnd_type={rnd_type!r}, factor_type={factor_type!r}): expected 'uniform', "
                "and one of 'in', 'out', 'avg'."
            )
        self.factor_type, self.magnitude = factor_type, float(magnitude)

    def _init_weight(self, name: str, arr: Array) -> None:
        if arr.ndim < 2:
            raise FrontendError(f"Xavier: the weight '{name}' has shape {arr.shape}; it needs two.")
        window = np.prod(arr.shape[2:])
        inputs, outputs = arr.shape[1] * window, arr.shape[0] * window
        connections = {"in": inputs, "out": outputs, "avg": (inputs + outputs) / 2}
        count = window if "depthwise" in name else connections[self.factor_type]
        scale = np.sqrt(self.magnitude / count)
        # The stream of old: the same call gives the weights that the old documentation had.
        arr[:] = np.random.uniform(-scale, scale, arr.shape)  # noqa: NPY002


class Constant(Initializer):
    """All weights are one number.

    Args:
        value: None is one by the number of weights.
    """

    def __init__(self, value: float | None = None) -> None:
        self.value = value

    def _init_weight(self, _name: str, arr: Array) -> None:
        arr[:] = 1 / arr.size if self.value is None else self.value


def create_workload(
    net: Expr, initializer: Initializer | None = None, seed: int = 0
) -> tuple[Module, dict[str, Tensor]]:
    """A network with values for its parameters.

    Args:
        net: a function, or a value whose free variables become parameters.
        initializer: `Xavier()` by default.
        seed: of NumPy's global generator, which is set to it, as it was: what a script draws
            afterwards is what it drew then.

    Returns:
        (mod, params): `main` with all parameters still inputs, and {name: values} of all but
        "data"; the same for the same arguments.

    Raises:
        FrontendError: a parameter whose name or shape says too little.
    """
    mod = Module.from_expr(net)
    fill = initializer or Xavier()
    np.random.seed(seed)  # noqa: NPY002
    params = {}
    for info in io_signature(to_relax(mod)):
        if info.name != _INPUT:
            values = np.zeros(_fixed(info), info.dtype)
            fill(info.name, values)
            params[info.name] = tvm.runtime.tensor(values)
    return mod, params


def _fixed(info: TensorInfo) -> tuple[int, ...]:
    dims = tuple(dim for dim in info.shape if dim is not None)
    if len(dims) < len(info.shape):
        raise FrontendError(
            f"The parameter '{info.name}' has the shape {info.shape}; give '{_INPUT}' a shape "
            "without open dimensions, or relay.var one."
        )
    return dims
