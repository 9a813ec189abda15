"""Options that several sub-commands share. Choices are read from the tables of the package."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from tvm_quant.config import BadData, QuantizeConfig, ZeroData
from tvm_quant.dataset import CheckedDataset, Preprocess, as_dataset
from tvm_quant.errors import ConfigError
from tvm_quant.frontend import FRONTENDS
from tvm_quant.ir import TensorInfo


def choice(values: Iterable[str], text: str, files: tuple[str, ...] = ()) -> Any:
    """An option that takes the names of a table, which the help lists, or files of some kinds."""
    names = list(values)

    def check(value: str | None) -> str | None:
        if value is None or value in names or (files and value.endswith(files)):
            return value
        close = difflib.get_close_matches(value, names, 1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise typer.BadParameter(f"'{value}' is not one of {', '.join(names)}.{hint}")

    return typer.Option(help=f"{text} One of {', '.join(names)}.", callback=check, metavar="NAME")


Artifact = Annotated[
    Path, typer.Argument(help="File that `quantize` wrote (.tvmq).", show_default=False)
]
Model = Annotated[
    Path,
    typer.Argument(
        help="Float model: " + "; ".join(row.reads for row in FRONTENDS.values()) + ".",
        show_default=False,
    ),
]
Quantized = Annotated[
    Path,
    typer.Argument(
        help="Model with its quantizers: ONNX (QDQ, QOperator, QONNX), TFLite, or a PyTorch "
        "program of PT2E (.pt2).",
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="YAML file of QuantizeConfig; other options override it."),
]
Skip = Annotated[
    list[str] | None,
    typer.Option(help="Keep nodes that match this pattern in float; repeatable."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any field of QuantizeConfig, as FIELD=VALUE; repeatable."),
]
DumpIr = Annotated[Path | None, typer.Option(help="Folder that gets the module after each pass.")]
Explain = Annotated[bool, typer.Option("--explain", help="Say why operators stayed in float.")]
Slim = Annotated[
    bool,
    typer.Option(
        "--slim", help="Leave out the float weights, which evaluate needs to compare layers."
    ),
]
Shape = Annotated[
    list[str] | None,
    typer.Option(help="Shape of an input, as NAME=1,3,224,224; repeatable."),
]
Params = Annotated[
    Path | None,
    typer.Option(
        help="File of weights that stand apart from the network, as relay.save_param_dict wrote it."
    ),
]
Data = Annotated[
    str,
    typer.Option(
        "--data", "-d", help="An .npz or .npy file, or a folder of images.", show_default=False
    ),
]
FloatModel = Annotated[
    Path | None,
    typer.Option(
        "--model", help="The float model, where it is not in the place it was quantized from."
    ),
]
PreprocessFile = Annotated[
    Path | None,
    typer.Option(help="YAML file that says how images become the input (crop, mean, std, ...)."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Samples to use at most.")]
Target = Annotated[
    str,
    typer.Option(
        help="Target to compile for: as TVM names it, or vta; options as JSON, such as "
        '{"kind": "vta", "config": "vta_config.json"}.'
    ),
]
OnBad = Annotated[BadData, typer.Option(help="What to do with samples that hold NaN or Inf.")]
OnZero = Annotated[ZeroData, typer.Option(help="What to do with a float input that is all zero.")]


def read_config(
    path: Path | None, fields: Mapping[str, Any], skip: Sequence[str], settings: Sequence[str]
) -> QuantizeConfig:
    """The config in a file, if one is given, with what other options set.

    Args:
        path: a YAML file.
        fields: of `QuantizeConfig`; None leaves a field as it is.
        skip: patterns to add.
        settings: texts as `parse_settings` reads them.
    """
    base = QuantizeConfig.load(path) if path is not None else QuantizeConfig()
    given = {
        name: getattr(value, "value", value) for name, value in fields.items() if value is not None
    }
    values = base.to_dict() | given | parse_settings(list(settings))
    chosen = QuantizeConfig.from_dict(values)
    return replace(chosen, skip=(*chosen.skip, *skip))


def open_data(
    source: str,
    signature: list[TensorInfo],
    *,
    preprocess: Preprocess | None,
    limit: int | None,
    on_bad: BadData = BadData.ERROR,
    on_zero: ZeroData = ZeroData.WARN,
) -> CheckedDataset:
    """Check the data named on the command line against the model's inputs."""
    return as_dataset(
        source, signature, limit=limit, preprocess=preprocess, on_bad=on_bad, on_zero=on_zero
    )


def read_preprocess(path: Path | None) -> Preprocess | None:
    """The spec in a YAML file, if one is given."""
    return Preprocess.from_yaml(path) if path is not None else None


def parse_shapes(texts: list[str]) -> dict[str, tuple[int, ...]] | None:
    """Read `data=1,3,32,32`.

    Raises:
        ConfigError: no such form.

    >>> parse_shapes(["data=1,3,32,32"])
    {'data': (1, 3, 32, 32)}
    """
    shapes = {}
    for text in texts:
        name, _, dims = text.rpartition("=")
        sizes = [dim.strip() for dim in dims.replace("x", ",").split(",")]
        if not name or not all(size.isdigit() and int(size) for size in sizes):
            raise ConfigError(f"--shape is '{text}'; expected NAME=1,3,224,224")
        shapes[name] = tuple(int(size) for size in sizes)
    return shapes or None


def parse_settings(texts: list[str]) -> dict[str, Any]:
    """Read `nbit_activation=16`, the value as YAML.

    Raises:
        ConfigError: no such form.

    >>> parse_settings(["per_channel=false", "nbit_weight=4"])
    {'per_channel': False, 'nbit_weight': 4}
    """
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(
                f"--set is '{text}'; expected FIELD=VALUE, such as nbit_activation=16"
            )
        settings[name.strip()] = _yaml_value(text, value)
    return settings


def _yaml_value(text: str, value: str) -> Any:
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        raise ConfigError(f"--set is '{text}'; the value is no YAML") from None
