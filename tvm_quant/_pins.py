"""The releases of TVM this package works with, checked before TVM is loaded.

apache-tvm 0.27.0.post1 accepts any apache-tvm-ffi from 0.1.14.post0 on, so a plain install takes
0.1.15. With that one `ir.save_json`, pickle and `Schedule.tensorize` end the process with a
segmentation fault. An error at import is the only moment at which the cause can still be named.
"""

from __future__ import annotations

from importlib import metadata

from tvm_quant.errors import PinError

PINS = {
    "apache-tvm": "0.27.0.post1",
    "apache-tvm-ffi": "0.1.14.post0",
}


def check_pins() -> None:
    """Raise unless exactly the pinned apache-tvm and apache-tvm-ffi are installed.

    Reads package metadata alone, so that it works where importing tvm would crash.

    Raises:
        PinError: a package is missing or of another release; the message holds the pip command.
    """
    found = {name: _installed(name) for name in PINS}
    wrong = [name for name in PINS if found[name] != PINS[name]]
    if not wrong:
        return
    observed = ", ".join(f"{name} {found[name] or 'is not installed'}" for name in wrong)
    expected = ", ".join(f"{name} {PINS[name]}" for name in wrong)
    command = "pip install " + " ".join(f"{name}=={version}" for name, version in PINS.items())
    raise PinError(
        f"Found {observed}; tvm_quant needs {expected}. Other releases crash the process in "
        f"ir.save_json, pickle and Schedule.tensorize. Run: {command}"
    )


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
