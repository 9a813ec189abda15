"""`Module`: functions of Relay expressions by name.

>>> from tvm_relay.expr import var
>>> x = var("x", shape=(2,))
>>> Module.from_expr(x + x)["main"].params
(%x,)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from tvm import IRModule

from tvm_quant.errors import FrontendError
from tvm_relay.expr import Expr, Function, GlobalVar
from tvm_relay.free_vars import free_vars


class Module:
    """Functions by name; immutable. Where TVM wants a module, the Relax module of it is passed.

    Args:
        functions: by `GlobalVar` or by name.

    Raises:
        FrontendError: one name for two functions, or a value that is no function.
    """

    #: Makes the Relax module; set by `tvm_relay.to_relax`, which knows the operators.
    lower: ClassVar[Callable[[Module], IRModule]]

    def __init__(self, functions: Mapping[GlobalVar | str, Function] | None = None):
        self._functions: dict[GlobalVar, Function] = {}
        for key, function in (functions or {}).items():
            self._add(key if isinstance(key, GlobalVar) else GlobalVar(key), function)

    @classmethod
    def from_expr(
        cls, expr: Expr, functions: Mapping[GlobalVar | str, Function] | None = None
    ) -> Module:
        """A module whose `main` is a function, or a function of the free variables of a value."""
        if not isinstance(expr, Function):
            expr = Function(tuple(free_vars(expr)), expr)
        return cls({"main": expr, **(functions or {})})

    @property
    def functions(self) -> Mapping[GlobalVar, Function]:
        """All functions, in the order in which they were given."""
        return MappingProxyType(self._functions)

    def __getitem__(self, name: GlobalVar | str) -> Function:
        return self._functions[self.get_global_var(_name(name))]

    def __contains__(self, name: GlobalVar | str) -> bool:
        return any(key.name_hint == _name(name) for key in self._functions)

    def get_global_var(self, name: str) -> GlobalVar:
        """The variable of the function of that name.

        Raises:
            FrontendError: there is none.
        """
        for key in self._functions:
            if key.name_hint == name:
                return key
        known = sorted(key.name_hint for key in self._functions)
        raise FrontendError(f"No function @{name}; the module has {known}.")

    def get_global_vars(self) -> list[GlobalVar]:
        """The variables of all functions."""
        return list(self._functions)

    def with_function(self, name: GlobalVar | str, function: Function) -> Module:
        """A copy in which the function of that name is this one."""
        key = self.get_global_var(_name(name)) if name in self else name
        functions: dict[GlobalVar | str, Function] = dict(self._functions.items())
        functions[key] = function
        return Module(functions)

    def to_relax(self) -> IRModule:
        """The same network as a Relax module: see `tvm_relay.to_relax`."""
        return Module.lower(self)

    def astext(self, show_meta_data: bool = True) -> str:
        """The module as text: see `tvm_relay.text.astext`."""
        from tvm_relay.text.printer import astext

        return astext(self, show_meta_data)

    def __tvm_ffi_object__(self) -> IRModule:
        """What TVM sees where this module is passed to it, to a `Sequential` of passes for one."""
        return self.to_relax()

    def _add(self, key: GlobalVar, function: Any) -> None:
        if not isinstance(function, Function):
            raise FrontendError(f"@{key.name_hint} is {function!r}; expected a relay.Function.")
        if key.name_hint in self:
            raise FrontendError(f"Two functions have the name @{key.name_hint}.")
        self._functions[key] = function


def _name(name: GlobalVar | str) -> str:
    return name.name_hint if isinstance(name, GlobalVar) else name
