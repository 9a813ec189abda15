"""Hardware rows of the user's own, as YAML.

    name: my_npu
    source: data sheet, table 3
    operators:
      contraction: {data: 8SN 8AN 4SN, weight: 8SCsn 4SCsn}
      nn.conv2d:depthwise: {data: 8SC, weight: 8SCsn}
      sum: {data: 8SN 4SN}
      pointwise: float
    unified: [concat, add]

`operators` names roles (contraction, sum, product, mean, clamp, pointwise) and single operators,
which come before their role. `data` lists grids, best first (see `Grid`); `other`, those of further
operands, is the same unless given, `weight` is 8SCsn 8SNsn. `float` has no integer form; a role
that is not named has none either. Operators that only move values always move integers, unless they
are `float`. Other keys are fields of `HardwareConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tvm_quant.errors import ConfigError
from tvm_quant.hardware.config import DEPTHWISE, HardwareConfig, OperandGrids
from tvm_quant.hardware.grid import Grid, grids
from tvm_quant.op import OP_SPECS, RequantizeMode, Role

FLOAT = "float"
WEIGHT = "8SCsn 8SNsn"
SUFFIXES = (".yaml", ".yml")
_OPERANDS = ("data", "other", "weight")
_COMPUTING = [role.value for role in Role if role not in (Role.MOVE, Role.JOIN)]


def read_row(path: str | Path) -> HardwareConfig:
    """The hardware row in a YAML file.

    Raises:
        ConfigError: the file cannot be read, or something in it is wrong; the message names the
            operator and the key.
    """
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read hardware row '{path}': {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"Hardware row '{path}' is no YAML: {error}") from error
    try:
        return row_of(values)
    except ConfigError as error:
        raise ConfigError(f"Hardware row '{path}': {error}") from error


def row_of(values: Any) -> HardwareConfig:
    """The hardware row of plain values, as a YAML file holds them.

    >>> row = row_of({"name": "mine", "operators": {"contraction": {"data": "8SN 4SN"}}})
    >>> [str(grid) for grid in row.operands("relax.nn.conv2d").data]
    ['8SN', '4SN']

    Raises:
        ConfigError: see `read_row`.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"expected `field: value` lines, not {type(values).__name__}.")
    unknown = sorted(map(str, set(values) - {"operators", *_FIELDS}))
    if unknown:
        raise ConfigError(
            f"unknown field(s) {unknown}; valid fields are {sorted(['operators', *_FIELDS])}."
        )
    if not isinstance(values.get("name"), str):
        raise ConfigError(f"name is {values.get('name')!r}; expected the name of the row.")
    fields = {name: _FIELDS[name](name, value) for name, value in values.items() if name in _FIELDS}
    return HardwareConfig(**{"source": "not given", **fields, **_operators(values)})


def _operators(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a row that the list of operators fills."""
    listed = values.get("operators")
    if not isinstance(listed, Mapping) or not listed:
        raise ConfigError(
            f"operators is {listed!r}; expected a mapping of roles {_COMPUTING} and operators."
        )
    roles: dict[Role, OperandGrids] = {}
    ops: dict[str, OperandGrids] = {}
    floats: set[str] = set()
    for key, value in listed.items():
        if str(key) in _COMPUTING:
            if value != FLOAT:
                roles[Role(key)] = _operands(str(key), value)
        elif value == FLOAT:
            floats.add(_op("operators", key))
        else:
            name = _op("operators", str(key).removesuffix(DEPTHWISE))
            ops[name + DEPTHWISE * str(key).endswith(DEPTHWISE)] = _operands(str(key), value)
    return {"roles": roles, "ops": ops, "float_ops": frozenset(floats)}


def _operands(key: str, value: Any) -> OperandGrids:
    if not isinstance(value, Mapping) or "data" not in value or set(value) - set(_OPERANDS):
        raise ConfigError(
            f"operators.{key} is {value!r}; expected 'float' or a mapping with data and, where "
            "they differ, other and weight."
        )
    given = {"other": value["data"], "weight": WEIGHT, **value}
    return OperandGrids(**{name: _grids(f"{key}.{name}", given[name]) for name in _OPERANDS})


def _grids(where: str, codes: Any) -> tuple[Grid, ...]:
    try:
        found = grids(codes) if isinstance(codes, str) else ()
    except ConfigError as error:
        raise ConfigError(f"operators.{where}: {error}") from error
    if not found:
        raise ConfigError(f"operators.{where} is {codes!r}; expected grids such as '8SN 4SN'.")
    return found


def _op(where: str, name: Any) -> str:
    full = f"relax.{name}"
    if full not in OP_SPECS:
        raise ConfigError(
            f"{where} names '{name}'; expected a role {_COMPUTING} or an operator such as "
            f"'nn.conv2d' of {sorted(op.removeprefix('relax.') for op in OP_SPECS)}."
        )
    return full


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{field} is {value!r}; expected text.")
    return value


def _number(field: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{field} is {value!r}; expected a whole number.")
    return value


def _switch(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{field} is {value!r}; expected true or false.")
    return value


def _ops(field: str, value: Any) -> frozenset[str]:
    if not isinstance(value, list):
        raise ConfigError(f"{field} is {value!r}; expected a list of operators.")
    return frozenset(_op(field, name) for name in value)


def _mode(field: str, value: Any) -> RequantizeMode:
    modes = [mode.value for mode in RequantizeMode]
    if value not in modes:
        raise ConfigError(f"{field} is {value!r}; expected one of {modes}.")
    return RequantizeMode(value)


_FIELDS: dict[str, Callable[[str, Any], Any]] = {
    "name": _text,
    "source": _text,
    "unified": _ops,
    "sums_on_accumulators": _switch,
    "sums_leave": _switch,
    "accumulator_bits": _number,
    "requantize": _mode,
    "power_of_two_scales": _switch,
    "largest_pair": _number,
}
