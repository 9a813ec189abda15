"""Reading Relay's text format: `parse`, `fromtext` and `parse_expr`."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from lark import Lark, Token, UnexpectedInput
from lark.exceptions import UnexpectedToken

from tvm_quant.errors import FrontendError
from tvm_relay.expr import Expr
from tvm_relay.module import Module
from tvm_relay.text.builder import INFIX, build
from tvm_relay.text.metadata import MetaTable, read_metadata
from tvm_relay.text.source import Place, RelayTextError, Source

_NO_COUNTERPART = "has no counterpart in Relax"
#: Words of Relay without a counterpart: what they are, and what to do.
_REFUSALS = {
    "type": f"an algebraic data type {_NO_COUNTERPART}. Use tuples.",
    "extern": f"an external type {_NO_COUNTERPART}. Use tuples.",
    "match": f"matching of algebraic data types {_NO_COUNTERPART}. Use tuples and if.",
    "ref": f"a reference {_NO_COUNTERPART}. Pass and return the value instead.",
    "ref_read": f"a reference {_NO_COUNTERPART}. Pass and return the value instead.",
    "ref_write": f"a reference {_NO_COUNTERPART}. Pass and return the value instead.",
}
#: What tokens are called in errors; those that are not here are written as they stand.
_TOKENS = {
    "$END": "the end",
    "BOOL": "True",
    "FLOAT": "a float",
    "GLOBAL": "@name",
    "GRAPH": "%0",
    "INT": "an integer",
    "LOCAL": "%name",
    "META": "meta[...]",
    "NAME": "a name",
    "NOTHING": "None",
    "STRING": "a string",
    "VERSION": '#[version = "0.0.5"]',
}
_MOST_EXPECTED = 8
_FLOAT_HINT = "A float has a suffix, as in 1.5f."


class _RefusedWord(Exception):
    """A word of Relay without a counterpart, met by the lexer."""

    def __init__(self, token: Token):
        super().__init__(str(token))
        self.token = token


def parse(
    text: str,
    source_name: str = "from_string",
    init_module: Module | None = None,
    init_meta_table: Mapping[str, Sequence[Any]] | None = None,
) -> Module:
    """The module of a text in version 0.0.5 of Relay's format, with or without its metadata.

    A text that is one function, or one expression, becomes the `main` of a module.

    Args:
        source_name: what errors call the text, such as a file.
        init_module: functions that the text may call; they are part of the result.
        init_meta_table: objects that the text names by `meta[type][number]`, behind those of its
            own metadata; {"relay.Constant": [constants]}.

    Raises:
        RelayTextError: no such text; something that Relax does not have: algebraic data types,
            references, type parameters; or a damaged metadata section. It has the line and column.

    >>> mod = parse('''#[version = "0.0.5"]
    ... def @main(%x: Tensor[(2, 3), float32]) { nn.relu(%x) + 1f }''')
    >>> mod["main"].params[0].type_annotation
    TensorType(shape=(2, 3), dtype='float32')
    """
    result = _read(Source(source_name, text), init_module, init_meta_table)
    return result if isinstance(result, Module) else Module.from_expr(result)


def fromtext(data: str, source_name: str = "from_string") -> Module:
    """`parse`, as the first versions of Relay called it."""
    return parse(data, source_name)


def parse_expr(text: str) -> Expr:
    """The expression of a text; its variables are declared with `free_var %x: float32;`.

    Raises:
        RelayTextError: no expression; see `parse`.

    >>> parse_expr("free_var %x: float32; %x * 2f").op
    multiply
    """
    source = Source("from_string", text)
    result = _read(source, None, None)
    if isinstance(result, Module):
        raise source.error("a module; expected an expression. Use parse.", Place(1, 1))
    return result


def _read(
    source: Source,
    init_module: Module | None,
    init_meta_table: Mapping[str, Sequence[Any]] | None,
) -> Module | Expr:
    if not isinstance(source.text, str):
        raise FrontendError(f"A Relay text is a str, not a {type(source.text).__name__}.")
    parts = source.parts()
    functions = init_module.functions if init_module is not None else {}
    if parts.metadata is None:
        metadata = MetaTable(extra=init_meta_table)
    else:
        metadata = read_metadata(source, parts.metadata, init_meta_table)
    try:
        tree = _parser().parse(parts.program)
    except _RefusedWord as error:
        raise _refusal(source, error.token) from None
    except UnexpectedInput as error:
        raise _unexpected(source, error) from None
    return build(tree, source, metadata, functions)


@functools.cache
def _parser() -> Lark:
    """The parser of the grammar, made once."""
    return Lark.open(
        "relay.lark",
        rel_to=__file__,
        start="program",
        parser="lalr",
        propagate_positions=True,
        maybe_placeholders=True,
        lexer_callbacks={"REFUSED": _refuse},
    )


def _refuse(token: Token) -> NoReturn:
    raise _RefusedWord(token)


def _refusal(source: Source, token: Token) -> RelayTextError:
    return source.error(_REFUSALS[str(token)], _place(token))


def _unexpected(source: Source, error: UnexpectedInput) -> RelayTextError:
    if isinstance(error, UnexpectedToken):
        return _unexpected_token(source, error.token, error.accepts or error.expected)
    offset = error.pos_in_stream or 0
    return source.error(
        f"{source.text[offset : offset + 1]!r} means nothing here. Names begin with % or @, "
        "operators with a letter.",
        Place(error.line, error.column),
    )


def _unexpected_token(source: Source, token: Token, accepted: Iterable[str]) -> RelayTextError:
    if token.type == "$END":
        place = source.place(len(source.parts().program.rstrip()))
        return source.error(f"the text ends too early; expected {_listed(accepted)}.", place)
    hint = f" {_FLOAT_HINT}" if str(token) == "." else ""
    found = f"found {str(token)!r}; expected {_listed(accepted)}.{hint}"
    return source.error(found, _place(token))


def _place(token: Token) -> Place:
    return Place(token.line or 1, token.column or 1)


def _listed(accepted: Iterable[str]) -> str:
    """Tokens as an error names them; infix operators last."""
    patterns = {terminal.name: terminal.pattern.value for terminal in _parser().terminals}
    names = {_TOKENS.get(name) or repr(patterns[name]) for name in {*accepted} - {"REFUSED"}}
    ordered = sorted(names, key=lambda name: (name.strip("'") in INFIX, name))
    more = ["..."] if len(ordered) > _MOST_EXPECTED else []
    return ", ".join([*ordered[:_MOST_EXPECTED], *more])
