"""`python -m tvm_relay script.py [arguments]`: run a script written for `tvm.relay` as it is."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from tvm_quant.errors import TvmQuantError
from tvm_relay.legacy import install


def main() -> int:
    """Give TVM the names of old, then run the script; 2 where there is none, 1 if it fails."""
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_file():
        sys.stderr.write("usage: python -m tvm_relay SCRIPT.py [arguments]\n")
        return 2
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    install()
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except TvmQuantError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
