"""The target "vta": a CPU that hands regions to a VTA.

TVM has no kind of target of that name any more. Ours is the host's `llvm` target with the device
"vta", and what the VTA is like as the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm.target import Target

from tvm_quant.backend.vta.config import VtaConfig
from tvm_quant.errors import BackendError

DEVICE = "vta"


@dataclass(frozen=True, kw_only=True)
class VtaOptions:
    """What programs are compiled for.

    Attributes:
        config: sizes of the VTA.
        extended: use instructions that only the functional simulator has.
    """

    config: VtaConfig = field(default_factory=VtaConfig)
    extended: bool = False


def vta_target(options: Mapping[str, Any], host: Target) -> Target:
    """The target with these options, on this CPU.

    Args:
        options: "config" is the path of a `vta_config.json` or its fields; "extended" is a bool.
        host: an `llvm` target.

    Raises:
        BackendError: an unknown option, or a value that it cannot have.
        ConfigError: see `VtaConfig`.
    """
    unknown = sorted(set(options) - {"kind", "config", "extended"})
    if unknown:
        raise BackendError(
            f"Target 'vta' has no option(s) {unknown}; it has 'config', the path of a "
            "vta_config.json, and 'extended'."
        )
    extended = options.get("extended", False)
    if not isinstance(extended, bool):
        raise BackendError(f"Option 'extended' of target 'vta' is {extended!r}; expected a bool.")
    model = {"config": _config(options.get("config")).to_json(), "extended": extended}
    return Target({**Target.export(host), "device": DEVICE, "model": json.dumps(model)})


def vta_options(target: Target) -> VtaOptions:
    """What `vta_target` was given."""
    model = json.loads(str(Target.export(target)["model"]))
    return VtaOptions(config=VtaConfig.from_json(model["config"]), extended=model["extended"])


def _config(value: Any) -> VtaConfig:
    if value is None:
        return VtaConfig()
    if isinstance(value, Mapping):
        return VtaConfig.from_json(value)
    if not isinstance(value, str):
        raise BackendError(
            f"Option 'config' of target 'vta' is {value!r}; expected the path of a vta_config.json."
        )
    return VtaConfig.read(value)
