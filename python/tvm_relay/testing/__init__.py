"""`relay.testing`: the networks that the old tutorials build, with the weights they had there.

    mod, params = relay.testing.resnet.get_workload(num_layers=18, batch_size=1)

Names, shapes, order and bits of the parameters are those of `tvm.relay.testing`; nothing is
trained. Each network has a file; `NETWORKS` lists them.

>>> sorted(NETWORKS)
['mlp', 'mobilenet', 'resnet', 'squeezenet', 'vgg']
"""

from __future__ import annotations

from tvm_relay.gone import GONE, advice
from tvm_relay.testing import init, layers, mlp, mobilenet, resnet, squeezenet, vgg
from tvm_relay.testing.init import create_workload

#: Every network by the name of its module; each has `get_workload`.
NETWORKS = {
    module.__name__.rpartition(".")[2]: module
    for module in (mlp, mobilenet, resnet, squeezenet, vgg)
}

__all__ = [
    "NETWORKS",
    "create_workload",
    "init",
    "layers",
    "mlp",
    "mobilenet",
    "resnet",
    "squeezenet",
    "vgg",
]


def __getattr__(name: str) -> object:
    if f"relay.testing.{name}" in GONE:
        raise AttributeError(advice(f"relay.testing.{name}"))
    raise AttributeError(f"relay.testing has no '{name}'; it has {__all__}.")
