"""Which array of a batch belongs to which input of the model."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm_quant.dataset.arrays import LABEL_NAMES, Array, is_tensor, to_numpy
from tvm_quant.errors import DatasetError
from tvm_quant.ir import TensorInfo


@dataclass(frozen=True, kw_only=True)
class RawBatch:
    """One batch as it came from the source: bound to names, not yet checked."""

    arrays: dict[str, Array]
    """{input name: array}, one for each input of the model."""

    labels: Array | None
    """What the samples show, if the source knows."""

    where: str
    """How to name the batch in a message, such as "batch 3" or "image cats/7.jpg"."""


def bind(item: Any, signature: Sequence[TensorInfo], where: str) -> RawBatch:
    """Bind a batch of any accepted form.

    Forms: one tensor (a model with one input), a mapping by input name, a tuple or list in the
    order of the inputs, `(inputs, labels)`, an object with `.data` and `.label` (MXNet). One more
    element than the model has inputs holds the labels, and so does a key named label, labels or y.

    Raises:
        DatasetError: inputs missing, unknown keys, the wrong number of tensors.
    """
    if isinstance(item, Mapping):
        return bind_mapping(item, signature, where)
    if isinstance(item, (str, bytes)) or item is None:
        raise DatasetError(
            f"{where} is a {type(item).__name__}; expected tensors for {listed(signature)}"
        )
    if is_tensor(item):
        return _bind_positions([item], None, signature, where)
    if isinstance(getattr(item, "data", None), (list, tuple)):
        return _bind_data_batch(item, signature, where)
    if isinstance(item, (list, tuple)):
        return _bind_sequence(item, signature, where)
    raise DatasetError(
        f"{where} is a {type(item).__name__}; expected a tensor, a tuple or a mapping of tensors "
        f"for {listed(signature)}"
    )


def bind_mapping(item: Mapping[Any, Any], signature: Sequence[TensorInfo], where: str) -> RawBatch:
    """Bind by name. A name may be written as the model file has it or as TVM renames it.

    Raises:
        DatasetError: inputs missing, or keys that are neither input nor label.
    """
    keys = {_plain(key): key for key in item}
    found = {
        info.name: item[info.name] if info.name in item else item[keys[_plain(info.name)]]
        for info in signature
        if info.name in item or _plain(info.name) in keys
    }
    missing = [info for info in signature if info.name not in found]
    wanted = {_plain(info.name) for info in signature}
    extra = [key for key in item if _plain(key) not in wanted]
    labels = [key for key in extra if str(key) in LABEL_NAMES]
    unknown = [str(key) for key in extra if key not in labels[:1]]
    if missing or unknown:
        raise DatasetError(_name_message(where, missing, unknown, signature))
    return RawBatch(
        arrays={name: to_numpy(value) for name, value in found.items()},
        labels=to_numpy(item[labels[0]]) if labels else None,
        where=where,
    )


def listed(signature: Iterable[TensorInfo]) -> str:
    """The inputs in words: "input 'x' (N, 3, 8, 8) float32"."""
    infos = [f"'{info.name}' {shape_text(info.shape)} {info.dtype}" for info in signature]
    return f"input{'s' * (len(infos) != 1)} {', '.join(infos)}" if infos else "no inputs"


def shape_text(shape: Iterable[int | None]) -> str:
    """A shape with '?' for a symbolic dimension.

    >>> shape_text((None, 3, 8, 8))
    '(?, 3, 8, 8)'
    """
    dims = ["?" if dim is None else str(dim) for dim in shape]
    return f"({', '.join(dims)}{',' * (len(dims) == 1)})"


def _bind_sequence(item: Sequence[Any], signature: Sequence[TensorInfo], where: str) -> RawBatch:
    count = len(signature)
    if len(item) == 2 and not is_tensor(item[0]) and is_tensor(item[1]):
        return replace(bind(item[0], signature, where), labels=to_numpy(item[1]))
    if len(item) == count + 1:
        return _bind_positions(item[:count], item[count], signature, where)
    return _bind_positions(item, None, signature, where)


def _bind_data_batch(item: Any, signature: Sequence[TensorInfo], where: str) -> RawBatch:
    """An MXNet `DataBatch`: lists `data` and `label`, and `pad` rows at the end that repeat."""
    labels = (getattr(item, "label", None) or [None])[0]
    names = [desc[0] for desc in getattr(item, "provide_data", None) or []]
    if sorted(names) == sorted(info.name for info in signature) and len(names) == len(item.data):
        raw = bind_mapping(dict(zip(names, item.data, strict=True)), signature, where)
        raw = replace(raw, labels=None if labels is None else to_numpy(labels))
    else:
        raw = _bind_positions(item.data, labels, signature, where)
    pad = int(getattr(item, "pad", 0) or 0)
    if not pad:
        return raw
    arrays = {name: array[:-pad] for name, array in raw.arrays.items()}
    return replace(raw, arrays=arrays, labels=None if raw.labels is None else raw.labels[:-pad])


def _bind_positions(
    values: Sequence[Any], labels: Any, signature: Sequence[TensorInfo], where: str
) -> RawBatch:
    if len(values) != len(signature):
        raise DatasetError(
            f"{where} holds {len(values)} tensor{'s' * (len(values) != 1)}, but the model has "
            f"{len(signature)} inputs: {listed(signature)}. Give a tuple in that order or a "
            "mapping by name"
        )
    pairs = zip(signature, values, strict=True)
    return RawBatch(
        arrays={info.name: to_numpy(value) for info, value in pairs},
        labels=None if labels is None else to_numpy(labels),
        where=where,
    )


def _name_message(
    where: str, missing: list[TensorInfo], unknown: list[str], signature: Sequence[TensorInfo]
) -> str:
    parts = []
    if missing:
        parts.append(f"nothing for {listed(missing)}")
    if unknown:
        parts.append(f"unknown name{'s' * (len(unknown) != 1)} {', '.join(map(repr, unknown))}")
    guesses = [
        f"'{info.name}' for '{close[0]}'"
        for info in missing
        if (close := difflib.get_close_matches(info.name, unknown, 1))
    ]
    hint = (
        f"Did you mean {', '.join(guesses)}?" if guesses else f"The model has {listed(signature)}"
    )
    return f"{where}: {' and '.join(parts)}. {hint}"


def _plain(name: Any) -> str:
    """TVM allows only identifier characters in a name: "input.1" becomes "input_1"."""
    return re.sub(r"[^A-Za-z0-9_]", "_", str(name))
