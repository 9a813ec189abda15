"""What a front end is: a row that recognises a source and turns it into a Relax module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
from tvm import IRModule

from tvm_quant.errors import ConfigError, FrontendError, TvmQuantError

Params = dict[str, npt.NDArray[Any]]
Shapes = Mapping[str, Sequence[int]]
GivenParams = Mapping[str, Any] | str | Path


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asked to load.

    Attributes:
        source: a path, bytes or an object of the format's own library.
        shapes: input shapes that replace those of the file, {input name: shape}; fixes dimensions
            that the file leaves open.
        example_inputs: arrays or tensors to trace a `torch.nn.Module` with.
        rounding: whose integers a network that is quantized already is to give, one of
            `Frontend.roundings`; None is the format's own choice.
        params: weights that stand apart from the network: {name: array} or a file of the format.
    """

    source: object
    shapes: Shapes | None = None
    example_inputs: Sequence[Any] | None = None
    rounding: str | None = None
    params: GivenParams | None = None

    def path(self) -> Path | None:
        """The source as a path, if it is one."""
        return Path(self.source) if isinstance(self.source, str | Path) else None


@dataclass(frozen=True, kw_only=True)
class Frontend:
    """One format.

    Attributes:
        name: what the command line calls it.
        reads: what may be passed, as shown to the user.
        accepts: whether a source looks like this format; imports no heavy library.
        load: reads it; returns (module, params): `main` in float with the weights as constants, and
            params only where the user gave them apart from the module.
        roundings: what `Request.rounding` may be for this format.
        takes_params: whether the format keeps weights apart from the network.
    """

    name: str
    reads: str
    accepts: Callable[[object], bool]
    load: Callable[[Request], tuple[IRModule, Params]]
    roundings: tuple[str, ...] = ()
    takes_params: bool = False

    def check_rounding(self, rounding: str | None) -> None:
        """Refuse a rounding that this format does not have.

        Raises:
            ConfigError: saying which it has.
        """
        if rounding is None or rounding in self.roundings:
            return
        known = ", ".join(self.roundings)
        expected = f"one of {known}" if known else "none: this format has no choice of kernels"
        raise ConfigError(
            f"rounding is '{rounding}'; expected {expected} for the format '{self.name}'."
        )

    def check_params(self, params: object) -> None:
        """Refuse weights apart from the network where the format has them inside.

        Raises:
            ConfigError: saying so.
        """
        if params is not None and not self.takes_params:
            raise ConfigError(
                f"params are given; a model of the format '{self.name}' brings its weights itself."
            )


def has_suffix(source: object, *suffixes: str) -> bool:
    """Whether `source` is a path with one of these endings."""
    return isinstance(source, str | Path) and Path(source).suffix.lower() in suffixes


def missing_extra(package: str, extra: str) -> FrontendError:
    """The error for a format whose library is not installed."""
    return FrontendError(
        f"Reading this model needs the package '{package}', which is not installed. "
        f'Run: pip install "tvm-quant[{extra}]"'
    )


@contextmanager
def failures_told(say: Callable[[str], str]) -> Iterator[None]:
    """Turn errors of the libraries that read a format into a `FrontendError`.

    Args:
        say: the message, given the line of the error that says most.
    """
    try:
        yield
    except TvmQuantError:
        raise
    except Exception as error:
        raise FrontendError(say(first_line(error))) from error


def first_line(error: BaseException) -> str:
    """The line of an error message that says most: the last one TVM prints, or the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    marked = [line for line in lines if "Error:" in line or "Check failed" in line]
    return (marked[-1] if marked else lines[0])[:300]
