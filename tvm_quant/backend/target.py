"""From what a user writes as a target to a complete `tvm.target.Target`."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import tvm
from tvm.target import Target
from tvm.target.codegen import llvm_get_cpu_features

from tvm_quant.backend.vta.target import DEVICE, vta_target
from tvm_quant.errors import BackendError

AnyTarget: TypeAlias = str | Target | Mapping[str, Any]

#: Kinds that TVM does not have: the target of (options, host).
KINDS: dict[str, Callable[[Mapping[str, Any], Target], Target]] = {DEVICE: vta_target}


def resolve_target(target: AnyTarget) -> Target:
    """The target to compile for.

    A plain "llvm" means this machine, with all its vector instructions. Anything more precise, such
    as `{"kind": "llvm", "mcpu": "skylake"}`, is taken as it is. "vta" is a VTA beside this
    machine's CPU; see `tvm_quant.backend.vta.target` for its options.

    Args:
        target: a name, a mapping, a JSON or a `Target` as TVM takes them.

    Raises:
        BackendError: TVM does not know the target, or was built without a code generator for it;
            the message lists the kinds for which it has one.
    """
    options = _options(target)
    if options.get("kind") in KINDS:
        return KINDS[options["kind"]](options, host_target())
    try:
        parsed = Target(dict(target) if isinstance(target, Mapping) else target)
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise BackendError(
            f"Unknown target {target!r}: {reason} Valid kinds are {', '.join(_kinds())}; "
            'give options as a dict, for example {"kind": "llvm", "mcpu": "skylake"}.'
        ) from error
    if parsed.kind.name not in _kinds():
        raise BackendError(
            f"Target {target!r}: this TVM was built without a code generator for "
            f"{parsed.kind.name}. Compile for one of {', '.join(_kinds())}, or install a TVM that "
            "has it."
        )
    return host_target() if _is_plain_llvm(parsed) else parsed


def backend_of(target: Target) -> str:
    """The row of `BACKENDS` for a target of `resolve_target`."""
    device = str(Target.export(target).get("device", ""))
    return device if device in KINDS else str(target.kind.name)


@functools.cache
def _kinds() -> tuple[str, ...]:
    """Kinds for which code can be made here."""
    generated = (
        kind
        for kind in Target.list_kinds()
        if tvm.get_global_func(f"target.build.{kind}", allow_missing=True) is not None
    )
    return tuple(sorted({*generated, *KINDS}))


def _options(target: AnyTarget) -> dict[str, Any]:
    """What a target says, where it is no `Target` yet."""
    if isinstance(target, Target):
        return {}
    if isinstance(target, Mapping):
        return dict(target)
    try:
        parsed = json.loads(target)
    except ValueError:
        return {"kind": target}
    return parsed if isinstance(parsed, dict) else {}


@functools.cache
def host_target() -> Target:
    """The machine we run on as LLVM sees it, less the features that its hypervisor hides."""
    detect = {name: _llvm_global(name)() for name in ("GetProcessTriple", "GetHostCPUName")}
    host: dict[str, str | list[str]] = {
        "kind": "llvm",
        "mtriple": str(detect["GetProcessTriple"]),
        "mcpu": str(detect["GetHostCPUName"]),
    }
    present = {str(name) for name, has in _llvm_global("GetHostCPUFeatures")().items() if has}
    known = {str(name) for name in _llvm_global("GetHostCPUFeatures")()}
    hidden = (llvm_get_cpu_features(Target(host)) & known) - present
    if hidden:
        host["mattr"] = [f"-{name}" for name in sorted(hidden)]
    return Target(host)


def runs_here(target: Target) -> bool:
    """Whether this machine's CPU has all features of an `llvm` target."""
    host = host_target()
    return (
        target.kind.name == "llvm"
        and _architecture(target) == _architecture(host)
        and llvm_get_cpu_features(target) <= llvm_get_cpu_features(host)
    )


def _architecture(target: Target) -> str:
    triple = Target.export(target).get("mtriple") or Target.export(host_target())["mtriple"]
    return str(triple).split("-", maxsplit=1)[0]


def _is_plain_llvm(target: Target) -> bool:
    return target.kind.name == "llvm" and not {"mcpu", "mattr", "tag"} & {
        str(name) for name in Target.export(target) if Target.export(target)[name]
    }


def _llvm_global(name: str) -> tvm.runtime.PackedFunc:
    return tvm.get_global_func(f"tvm.codegen.llvm.{name}")
