"""`tvm-quant demo`: a network that comes with the package, quantized and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_quant.cli import options
from tvm_quant.cli.guard import stdout
from tvm_quant.demo import DEMOS
from tvm_quant.demo.run import run_demo


def demo(
    model: Annotated[str, options.choice(DEMOS, "Which network.")] = next(iter(DEMOS)),
    data: Annotated[
        Path | None, typer.Option("--data", "-d", help="Folder of images, for an ImageNet network.")
    ] = None,
    target: options.Target = "llvm",
) -> None:
    """Quantize a network that comes with the package, and compare it with float.

    [bold]Example:[/]  tvm-quant demo --model efficientnet-lite0 --data photos/
    """
    run_demo(stdout(), model, data=data, target=target)
