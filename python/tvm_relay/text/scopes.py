"""Names of a program while it is read: what `%x` and `%0` stand for at each place."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvm_relay.expr import Expr, Var


@dataclass
class _Binding:
    """A variable, and the function that its value may not read it in, while that is being read."""

    var: Var
    pending: int | None = None


@dataclass
class _Frame:
    """What a pair of braces holds: how many names it bound, and its nodes by number."""

    names: int
    nodes: dict[int, Expr] = field(default_factory=dict)
    escaped: dict[int, Expr | None] = field(default_factory=dict)


class ScopeError(Exception):
    """A name that stands for nothing; the text says why."""


class Scopes:
    """Nested scopes of variables and of nodes.

    A variable is known until the block ends that bound it. A node, `%0 = ...`, is known in its
    braces and to the braces inside; where no other node has its number, it is known outside too:
    TVM's printer defines a node that two branches share in the first of them.
    """

    def __init__(self) -> None:
        self._known: dict[str, list[_Binding]] = {}
        self._order: list[str] = []
        self._frames = [_Frame(0)]
        self._functions = 0

    def open(self, *, function: bool = False) -> None:
        """Braces begin; those of a function with its parameters, which are bound next."""
        self._functions += function
        self._frames.append(_Frame(len(self._order)))

    def close(self, *, function: bool = False) -> None:
        """Braces end."""
        self._functions -= function
        frame = self._frames.pop()
        self.forget(len(self._order) - frame.names)
        outer = self._frames[-1]
        for number, expr in {**frame.escaped, **frame.nodes}.items():
            known = outer.escaped.get(number, expr)
            outer.escaped[number] = expr if known is expr else None

    def bind(self, var: Var) -> None:
        """A variable is known from here on; it hides one of the same name."""
        self._known.setdefault(var.name_hint, []).append(_Binding(var))
        self._order.append(var.name_hint)

    def bind_pending(self, var: Var) -> None:
        """As `bind`; until `settle` only functions inside the value may read it: by recursion."""
        self.bind(var)
        self._known[var.name_hint][-1].pending = self._functions

    def settle(self, var: Var) -> None:
        """The value of the variable has been read."""
        self._known[var.name_hint][-1].pending = None

    def bind_outermost(self, var: Var) -> None:
        """A free variable: known to the end of the definition."""
        self._known.setdefault(var.name_hint, []).insert(0, _Binding(var))

    def forget(self, count: int) -> None:
        """The last so many variables are no longer known."""
        for _ in range(count):
            self._known[self._order.pop()].pop()

    def variable(self, name: str) -> Var | None:
        """The variable of that name.

        Raises:
            ScopeError: it is still being bound.
        """
        bindings = self._known.get(name)
        if not bindings:
            return None
        binding = bindings[-1]
        if binding.pending is not None and binding.pending >= self._functions:
            raise ScopeError(
                f"%{name} is read in its own value: in Relay the name is bound before. Choose "
                "another name."
            )
        return binding.var

    def define(self, number: int, expr: Expr) -> None:
        """`%number` is this node.

        Raises:
            ScopeError: it is another one already.
        """
        frame = self._frames[-1]
        if number in frame.nodes:
            raise ScopeError(f"%{number} is defined twice; number the nodes of a function anew.")
        frame.nodes[number] = expr

    def node(self, number: int) -> Expr:
        """The node of that number.

        Raises:
            ScopeError: there is none, or several.
        """
        for frame in reversed(self._frames):
            if number in frame.nodes:
                return frame.nodes[number]
            if number in frame.escaped:
                expr = frame.escaped[number]
                if expr is None:
                    raise ScopeError(
                        f"%{number} is defined in several braces that have ended; number the nodes "
                        "of a function anew."
                    )
                return expr
        raise ScopeError(
            f"%{number} is not defined here. Nodes are defined above their first use, by "
            f"%{number} = ..."
        )

    def forget_all(self) -> None:
        """A definition has ended; the next one knows none of its names."""
        self._known, self._order = {}, []
        self._frames = [_Frame(0)]
