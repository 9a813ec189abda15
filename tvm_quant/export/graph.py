"""An ONNX graph while it is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from tvm import relax

from tvm_quant.errors import UnsupportedError

Array = npt.NDArray[Any]


class Graph:
    """Nodes and constants, with unique names.

    Names of tensors are those of Relax variables, or made from them.
    """

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.domains: set[str] = {""}
        self._taken: set[str] = set()
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def unique(self, wanted: str) -> str:
        """`wanted`, or that with a number."""
        name, count = wanted, 1
        while name in self._taken:
            name, count = f"{wanted}_{count}", count + 1
        self._taken.add(name)
        return name

    def add(
        self, operator: str, inputs: list[str], output: str, *, domain: str = "", **attributes: Any
    ) -> str:
        """A node with one output, whose name it returns."""
        output = self.unique(output)
        given = {name: value for name, value in attributes.items() if value is not None}
        name = f"{output}/{operator}"
        node = helper.make_node(operator, inputs, [output], name=name, domain=domain, **given)
        self.nodes.append(node)
        self.domains.add(domain)
        return output

    def constant(self, array: npt.ArrayLike, name: str) -> str:
        """An initializer; equal ones are one."""
        array = np.asarray(array)
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.unique(name)
            tensor = numpy_helper.from_array(np.asarray(array, order="C"), self._constants[key])
            self.initializers.append(tensor)
        return self._constants[key]

    def integers(self, values: list[int], name: str) -> str:
        """A vector of int64, as axes and shapes are."""
        return self.constant(np.asarray(values, "int64"), name)


def value_info(name: str, expr: relax.Expr) -> ValueInfoProto:
    """Name, type and shape of a graph input or output.

    Raises:
        UnsupportedError: it is no tensor of known rank.
    """
    ty = expr.ty
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        raise UnsupportedError(
            f"'{name}' has type {ty}; ONNX needs a tensor of known rank. Fix its shape when the "
            "model is loaded, with shapes={...}."
        )
    dims = [_dimension(dim) for dim in ty.shape.values]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(str(ty.dtype)))
    return onnx.helper.make_tensor_value_info(name, element, dims)


def _dimension(dim: Any) -> int | str:
    return int(dim) if hasattr(dim, "value") else str(dim)
