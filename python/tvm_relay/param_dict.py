"""`relay.save_param_dict` and `relay.load_param_dict`, on tensors of TVM as well as arrays.

>>> import numpy as np
>>> load_param_dict(save_param_dict({"w": np.ones(2, "float32")}))["w"].numpy()
array([1., 1.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm.runtime import Tensor

from tvm_relay import text
from tvm_relay.expr import as_array


def save_param_dict(params: Mapping[str, Any]) -> bytes:
    """The bytes of a `.params` file."""
    return text.save_param_dict({name: as_array(value) for name, value in params.items()})


def load_param_dict(param_bytes: bytes | bytearray) -> dict[str, Tensor]:
    """The tensors of a `.params` file.

    Raises:
        FrontendError: no such file, or a damaged one.
    """
    arrays = text.load_param_dict(bytes(param_bytes))
    return {name: tvm.runtime.tensor(array) for name, array in arrays.items()}
