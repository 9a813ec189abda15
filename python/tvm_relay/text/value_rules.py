"""Rules for what stands beside expressions: attributes, and types.

The base of the rules for expressions (builder.py).
"""

# ruff: noqa: D102, a method is named as its rule in relay.lark

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import tvm
from lark import Token, v_args
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from tvm_quant.errors import FrontendError
from tvm_relay.expr import Attrs
from tvm_relay.text.literals import read_number, read_string
from tvm_relay.text.metadata import MetaTable, parse_reference
from tvm_relay.text.scopes import ScopeError
from tvm_relay.text.source import Place, RelayTextError, Source
from tvm_relay.ty import Any as AnyDimension
from tvm_relay.ty import FuncType, TensorType, TupleType, Type

MaybeType: TypeAlias = Type | None


@dataclass(frozen=True)
class Attribute:
    """One attribute of a call or function."""

    name: str
    value: Any


def _with_place(func: Callable[..., Any], _rule: str, children: list[Any], meta: Meta) -> Any:
    place = None if meta.empty else Place(meta.line, meta.column)
    return func(place, *children)


#: Rules get the place where their text begins, None where they have no text, and their children.
with_place = v_args(wrapper=_with_place)


@with_place
class ValueRules(Transformer_NonRecursive[Token, Any]):
    """One method for each rule, and what all rules need: the text and places in it."""

    def __init__(self, source: Source, metadata: MetaTable) -> None:
        super().__init__(visit_tokens=False)
        self._source = source
        self._metadata = metadata

    # Attributes

    def attribute(self, _place: Place, name: Token, value: Any) -> Attribute:
        return Attribute(str(name), value)

    def attributes(self, place: Place, *items: Attribute) -> Attrs:
        return self._attrs(place, items)

    def number(self, place: Place, token: Token) -> Any:
        return self._literal(place, read_number, token)

    def string(self, _place: Place, token: Token) -> str:
        return read_string(token)

    def nothing(self, _place: Place, _token: Token) -> None:
        return None

    def unknown(self, _place: Place) -> AnyDimension:
        return AnyDimension()

    def values(self, _place: Place | None, *items: Any) -> tuple[Any, ...]:
        return items

    def meta_value(self, place: Place, token: Token) -> Any:
        reference = parse_reference(token)
        if reference is None:
            raise self._error("a reference to metadata has the form meta[type][number].", token)
        with self._at(place):
            return self._metadata.get(*reference)

    # Types; None where the text leaves a part open.

    def tensor_type(self, _place: Place, shape: tuple[Any, ...], dtype: Token) -> MaybeType:
        return TensorType(shape, self._dtype(dtype))

    def scalar_type(self, _place: Place, dtype: Token) -> MaybeType:
        return TensorType((), self._dtype(dtype))

    def generic_type(self, _place: Place, name: Token, *_args: MaybeType) -> MaybeType:
        raise self._no_type(name)

    def tuple_type(self, _place: Place, fields: Sequence[MaybeType]) -> MaybeType:
        known = [field for field in fields if field is not None]
        return TupleType(tuple(known)) if len(known) == len(fields) else None

    def function_type(
        self, _place: Place, params: Sequence[MaybeType], result: MaybeType
    ) -> MaybeType:
        known = [param for param in params if param is not None]
        if result is None or len(known) < len(params):
            return None
        return FuncType(tuple(known), result)

    def no_type(self, _place: Place) -> MaybeType:
        return None

    def types(self, _place: Place | None, *items: MaybeType) -> Sequence[MaybeType]:
        return items

    def shape(self, place: Place, *sizes: Any) -> tuple[Any, ...]:
        for size in sizes:
            if not isinstance(size, int | AnyDimension) or (isinstance(size, int) and size < 0):
                raise self._source.error(
                    f"a dimension is {size!r}; expected a number that is not negative, or ?.", place
                )
        return sizes

    def known(self, place: Place, token: Token) -> int:
        return self._number(token, place)

    def _dtype(self, token: Token) -> str:
        try:
            dtype = tvm.DataType(str(token))
        except Exception:
            raise self._no_type(token) from None
        if dtype.lanes != 1:
            raise self._error(f"the dtype {token} is a vector; tensors hold scalars.", token)
        return str(token)

    def _no_type(self, token: Token) -> RelayTextError:
        return self._error(
            f"{token} is no dtype. Where it is an algebraic data type or a type parameter: Relax "
            "has neither; use tuples and tensors.",
            token,
        )

    # Help

    def _attrs(self, place: Place, items: Sequence[Attribute]) -> Attrs:
        self._check_once(place, "the attribute '{}' is given twice.", [i.name for i in items])
        return Attrs(**{item.name: item.value for item in items})

    def _check_once(self, place: Place, message: str, names: Sequence[str]) -> None:
        for name, count in Counter(names).items():
            if count > 1:
                raise self._source.error(message.format(name), place)

    def _number(self, text: str, place: Place) -> int:
        value = self._literal(place, read_number, text)
        if not 0 <= value < 2**63:
            raise self._source.error(f"{text} is out of range here.", place)
        return int(value)

    def _literal(self, place: Place, read: Callable[[str], Any], text: str) -> Any:
        with self._at(place):
            return read(text)

    @contextmanager
    def _at(self, place: Place) -> Iterator[None]:
        """Errors inside are about this place."""
        try:
            yield
        except RelayTextError:
            raise
        except (FrontendError, ScopeError, ValueError) as error:
            raise self._source.error(str(error), place) from None

    def _error(self, message: str, token: Token) -> RelayTextError:
        assert token.line is not None and token.column is not None
        return self._source.error(message, Place(token.line, token.column))
