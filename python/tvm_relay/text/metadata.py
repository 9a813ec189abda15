"""The metadata section: what does not fit between the lines of a program, constants above all.

It is a graph of nodes as JSON, as TVM of Relay's time saved its objects; node 1 of it maps a type
to a list of objects, and `meta[relay.Constant][0]` in the program is the first of those.

Source: the output of `IRModule.astext()`, TVM 0.7 to 0.19.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_quant.errors import FrontendError
from tvm_relay.expr import Attrs, Constant
from tvm_relay.text.ndarray import read_tensor, write_tensor
from tvm_relay.text.source import Place, Source
from tvm_relay.ty import Any as AnyDimension

CONSTANT = "relay.Constant"

#: How the types of an operator's attributes begin.
_ATTRS = "relay.attrs."

#: References to nodes nest no deeper in what TVM writes.
_DEEPEST = 32
#: The version of TVM whose layout of nodes is written.
_WRITTEN_AS = "0.16.dev0"


@dataclass(frozen=True)
class Opaque:
    """An object of TVM that has no meaning here, such as a virtual device.

    Attributes:
        type_key: what TVM calls its class.
    """

    type_key: str


class MetaTable:
    """Objects of the metadata by type and number, decoded when they are asked for.

    Args:
        nodes, blobs: the two lists of the JSON text: nodes, and tensors in base64.
        root: the number of the node that maps types to lists; 0 is no metadata.
        extra: more objects by type; they are numbered behind those of the text.
    """

    def __init__(
        self,
        nodes: Sequence[Any] = (),
        blobs: Sequence[Any] = (),
        root: int = 0,
        extra: Mapping[str, Sequence[Any]] | None = None,
    ):
        self._nodes = nodes
        self._blobs = blobs
        self._extra = dict(extra or {})
        self._decoded: dict[int, Any] = {}
        self._lists = self._node(root) if root else {}
        if not isinstance(self._lists, dict):
            raise FrontendError(f"node {root}, the root, is no map of types to lists.")

    def get(self, type_key: str, index: int) -> Any:
        """The object that `meta[type_key][index]` names; a `Constant`, a number, a text ...

        Raises:
            FrontendError: there is none, or it is damaged.
        """
        inside = self._indices(self._lists.get(type_key))
        extra = self._extra.get(type_key, ())
        if not 0 <= index < len(inside) + len(extra):
            raise FrontendError(self._missing(type_key, len(inside) + len(extra)))
        if index >= len(inside):
            return extra[index - len(inside)]
        return self.value(inside[index])

    def _missing(self, type_key: str, count: int) -> str:
        if count:
            return f"the metadata holds {count} objects of type {type_key}, numbered from 0."
        return (
            f"there is no {type_key} in the metadata. The text was printed without it; print it "
            "with astext(show_meta_data=True), or pass init_meta_table."
        )

    def _indices(self, value: Any) -> list[int]:
        return value.items if isinstance(value, _List) else []

    def _node(self, index: Any, depth: int = 0) -> Any:
        number = _integer(index, "a reference to a node")
        if number not in self._decoded:
            if depth > _DEEPEST:
                raise FrontendError("nodes of the metadata refer to each other in a circle.")
            if not 0 <= number < len(self._nodes) or not isinstance(self._nodes[number], dict):
                raise FrontendError(f"node {number} of the metadata does not exist.")
            node = self._nodes[number]
            key = str(node.get("type_key", ""))
            decode = _decode_attrs if key.startswith(_ATTRS) else _DECODERS.get(key)
            value = decode(self, node, depth) if decode else Opaque(key)
            self._decoded[number] = value
        return self._decoded[number]

    def value(self, index: Any, depth: int = 0) -> Any:
        """The object of a node, with the lists in it decoded."""
        value = self._node(index, depth)
        if isinstance(value, _List):
            return tuple(self.value(item, depth + 1) for item in value.items)
        return value

    def blob(self, index: Any) -> Constant:
        """The constant of a tensor."""
        number = _integer(index, "a reference to a tensor")
        if not 0 <= number < len(self._blobs):
            raise FrontendError(f"tensor {number} of the metadata does not exist.")
        try:
            data = base64.b64decode(self._blobs[number], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise FrontendError(f"tensor {number} is no base64: {error}.") from None
        return Constant(read_tensor(data))


@dataclass(frozen=True)
class _List:
    """A list whose items are decoded one by one."""

    items: list[int]


def read_metadata(
    source: Source, start: int, extra: Mapping[str, Sequence[Any]] | None
) -> MetaTable:
    """The table of a metadata section.

    Args:
        start: index into the text of the JSON.

    Raises:
        RelayTextError: no JSON, or not of this kind.
    """
    text = source.text[start:]
    try:
        saved = json.loads(text)
        return MetaTable(
            saved["nodes"], saved.get("b64ndarrays", ()), _integer(saved["root"], "root"), extra
        )
    except json.JSONDecodeError as error:
        place = source.place(start + error.pos)
        raise source.error(f"the metadata is no JSON: {error.msg}.", place) from None
    except FrontendError as error:
        raise source.error(f"metadata: {error}", _heading(source, start)) from None
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise source.error(
            "the metadata is JSON, but not of nodes as TVM saves them ('root', 'nodes' and "
            "'b64ndarrays').",
            _heading(source, start),
        ) from None


def _heading(source: Source, start: int) -> Place:
    return source.place(source.text.rindex("#", 0, start))


def write_metadata(constants: Sequence[Constant]) -> str:
    """The metadata section of a program with these constants, as TVM 0.16 reads it."""
    nodes: list[dict[str, Any]] = [
        {"type_key": ""},
        {"type_key": "Map", "keys": [CONSTANT], "data": [2]},
        {"type_key": "Array", "data": list(range(5, 5 + len(constants)))},
        {
            "type_key": "VirtualDevice",
            "attrs": {
                "device_type_int": "-1",
                "memory_scope": "4",
                "target": "0",
                "virtual_device_id": "-1",
            },
        },
        {"type_key": "runtime.String"},
    ]
    for number in range(len(constants)):
        attrs = {"_checked_type_": "0", "data": str(number), "span": "0", "virtual_device_": "3"}
        nodes.append({"type_key": CONSTANT, "attrs": attrs})
    blobs = [base64.b64encode(write_tensor(constant.data)).decode() for constant in constants]
    saved = {
        "root": 1,
        "nodes": nodes,
        "b64ndarrays": blobs,
        "attrs": {"tvm_version": _WRITTEN_AS},
    }
    return f"#[metadata]\n{json.dumps(saved, indent=2)}\n"


def parse_reference(text: str) -> tuple[str, int] | None:
    """Type and number of `meta[type][number]`; None where the number is none.

    >>> parse_reference("meta[relay.Constant][12]")
    ('relay.Constant', 12)
    """
    match = re.fullmatch(r"meta\[\s*([^\]]*?)\s*\]\[\s*(\d{1,9})\s*\]", text)
    return (match.group(1), int(match.group(2))) if match else None


def _integer(value: Any, what: str) -> int:
    """Numbers stand in the JSON as such, or as text."""
    try:
        if isinstance(value, int | str):
            return int(value)
    except ValueError:
        pass
    raise FrontendError(f"{what} is {value!r}; expected a number.")


def _attribute(node: Mapping[str, Any], name: str) -> Any:
    attrs = node.get("attrs")
    if not isinstance(attrs, dict) or name not in attrs:
        raise FrontendError(f"a node of type {node.get('type_key')} has no '{name}'.")
    return attrs[name]


def _decode_list(_table: MetaTable, node: Mapping[str, Any], _depth: int) -> Any:
    items = node.get("data", [])
    if not isinstance(items, list):
        raise FrontendError("a list of the metadata is none.")
    return _List(items)


def _decode_map(table: MetaTable, node: Mapping[str, Any], depth: int) -> Any:
    data, keys = node.get("data", []), node.get("keys")
    if keys is None:
        keys, data = data[::2], data[1::2]
        keys = [table.value(key, depth + 1) for key in keys]
    if not all(isinstance(key, str | int | float | bool) for key in keys):
        raise FrontendError("a map of the metadata has keys that are no texts.")
    return {key: table._node(value, depth + 1) for key, value in zip(keys, data, strict=False)}


def _decode_float(_table: MetaTable, node: Mapping[str, Any], _depth: int) -> Any:
    value = _attribute(node, "value")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise FrontendError(f"a number of the metadata is {value!r}.") from None


def _decode_attrs(_table: MetaTable, node: Mapping[str, Any], _depth: int) -> Attrs:
    """Attributes of a call. A number may be a value or refer to a node: only TVM's classes know."""
    attrs = node.get("attrs") or {}
    if not isinstance(attrs, dict) or any(_is_number(value) for value in attrs.values()):
        raise FrontendError(
            f"attributes of type {node['type_key']} are not read from metadata. Write them into "
            "the call, as name=value."
        )
    return Attrs(**{name: str(value) for name, value in attrs.items()})


def _is_number(value: Any) -> bool:
    return not isinstance(value, str) or value.lstrip("-").replace(".", "", 1).isdigit()


def _decode_string(node: Mapping[str, Any]) -> str:
    """A text; in base64 its length stands before it."""
    if "repr_b64" not in node:
        return str(node.get("repr_str", ""))
    try:
        return base64.b64decode(node["repr_b64"], validate=True)[8:].decode("utf-8", "replace")
    except (binascii.Error, TypeError, ValueError) as error:
        raise FrontendError(f"a text of the metadata is no base64: {error}.") from None


#: Type of a node: what it stands for.
_DECODERS: dict[str, Callable[[MetaTable, Mapping[str, Any], int], Any]] = {
    "": lambda _table, _node, _depth: None,
    "Array": _decode_list,
    "Map": _decode_map,
    "runtime.String": lambda _table, node, _depth: _decode_string(node),
    "IntImm": lambda _table, node, _depth: _integer(_attribute(node, "value"), "a number"),
    "FloatImm": _decode_float,
    "tir.Any": lambda _table, _node, _depth: AnyDimension(),
    CONSTANT: lambda table, node, _depth: table.blob(_attribute(node, "data")),
}
