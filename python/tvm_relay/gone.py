"""Names of old that stand nowhere: what to write instead.

>>> advice("relay.ir_pass").partition(":")[0]
'relay.ir_pass is gone'
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_TUNERS = (
    "kernels have schedules already; `tvm_quant.compile(mod, target, tune=True)` measures more of "
    "them on this machine."
)
_FROM_FILES = (
    "relay.testing.NETWORKS has five networks; others come from a file: relay.frontend.from_onnx "
    "and its like."
)
_NETWORKS = ("dcgan", "densenet", "dqn", "inception_v3", "lstm", "resnet_3d", "yolo_detection")
#: Name, `tvm.relay` being `relay`: what to do.
GONE: Mapping[str, str] = {
    "relay.ir_pass": (
        "relay.analysis has free_vars, all_vars and post_order_visit, relay.transform the passes; "
        "types need no infer_type, quantize and build find them."
    ),
    **{f"relay.testing.{name}": _FROM_FILES for name in _NETWORKS},
    "relay.testing.run_infer_type": "types need no pass; relay.to_relax(expr) shows them.",
    "relay.testing.run_opt_pass": "apply the pass itself: passes take a relay.Module or function.",
    "tvm.auto_scheduler": _TUNERS,
    "tvm.autotvm": _TUNERS,
    "tvm.contrib.debugger": (
        "graph_executor.GraphModule runs and measures a network; "
        "tvm_quant.bench.layer_times.layer_times(mod, inputs) measures its layers, and "
        "`tvm-quant evaluate --layers` compares those of a quantized one with the original."
    ),
}


def advice(name: str) -> str:
    """What an error says of a name in `GONE`."""
    return f"{name} is gone: {GONE[name]}"


class Finder(MetaPathFinder):
    """Refuses imports of what is gone, with advice, in every form that an import may have."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """None: what is not gone is found elsewhere."""
        name = fullname.replace("tvm_relay", "relay").replace("tvm.relay", "relay")
        if name in GONE:
            raise ImportError(advice(name), name=fullname)
        return None


def install() -> None:
    """Let imports of what is gone give advice."""
    sys.meta_path.insert(0, Finder())
