"""What an operation does is a field of its record: no module outside `palladio/ops` lists operations by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from palladio.ops import OPS
from tests.architecture.source import Module, modules, nodes

OTHER_NAMES: dict[str, str] = {
    "palladio/array": "names of functions of NumPy",
    "palladio/lax": "names of functions of jax.lax",
    "palladio/numpy": "names of functions of NumPy",
    "palladio/__init__.py": "the public names",
    "palladio/machine/repair/wording.py": "names of functions in the source of a kernel",
    "palladio/trace/values.py": "names of functions of NumPy",
}
"""Where lists of names that are also those of operations mean something else, or remain."""


def _lists_in(tree: ast.AST) -> Iterator[ast.AST]:
    """Tuples, lists and sets of two or more names of operations, but for those that name the rows of a table."""
    rows = {id(part) for node in nodes(tree) for names in _rows_of(node) for part in ast.walk(names)}
    for node in nodes(tree):
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)) and id(node) not in rows:
            names = [each.value if isinstance(each, ast.Constant) else None for each in node.elts]
            if len(names) >= 2 and all(isinstance(name, str) and name in OPS for name in names):
                yield node


def _facts_in(tree: ast.AST) -> Iterator[ast.Dict]:
    """Dictionaries from two or more names of operations to data: a list of operations with a fact of each.

    A table of rules has functions for values, and is what each target is made of.
    """
    for node in nodes(tree):
        if isinstance(node, ast.Dict) and len(node.keys) >= 2 and not any(map(_is_function, node.values)):
            names = [each.value if isinstance(each, ast.Constant) else None for each in node.keys]
            if all(isinstance(name, str) and name in OPS for name in names):
                yield node


def _is_function(node: ast.AST) -> bool:
    """True if a value of a dictionary is written as a function is: a name, `module.name`, a lambda, or a call."""
    return isinstance(node, (ast.Name, ast.Attribute, ast.Lambda, ast.Call, ast.Subscript))


def _rows_of(node: ast.AST) -> Iterator[ast.AST]:
    """The names of rows in `{name: rule for name in names}` and `dict.fromkeys(names, rule)`."""
    if isinstance(node, ast.DictComp):
        yield from (generator.iter for generator in node.generators)
    if isinstance(node, ast.Call) and len(node.args) == 2 and ast.unparse(node.func) == "dict.fromkeys":
        yield node.args[0]


def _questions_in(tree: ast.AST) -> Iterator[ast.AST]:
    """Comparisons of an operation's name with a text, and questions how it begins."""
    for node in nodes(tree):
        texts = (ast.Constant, ast.Tuple, ast.Set)
        if isinstance(node, ast.Compare) and _is_name(node.left) and isinstance(node.comparators[0], texts):
            yield node
        if isinstance(node, ast.Attribute) and node.attr == "startswith" and _is_name(node.value):
            yield node


def _is_name(node: ast.AST) -> bool:
    """Whether an expression is `op.name` or `eqn.op.name`."""
    return isinstance(node, ast.Attribute) and node.attr == "name" and ast.unparse(node.value).split(".")[-1] == "op"


def _is_about_others(module: Module) -> bool:
    path = module.at(module.tree)
    return any(path.startswith(start) for start in OTHER_NAMES)


OUTSIDE = [each for each in modules() if each.unit != "ops" and not _is_about_others(each)]


def test_no_module_lists_operations_by_name() -> None:
    found = [f"{each.at(node)}: {ast.unparse(node)}" for each in OUTSIDE for node in _lists_in(each.tree)]
    assert not found, "give the record `Op` a field that says what these have in common"


def test_no_module_has_facts_of_operations_by_name() -> None:
    found = [f"{each.at(node)}: {ast.unparse(node)}" for each in OUTSIDE for node in _facts_in(each.tree)]
    assert not found, "give the record `Op` a field, or key the dictionary by records"


def test_no_module_compares_the_name_of_an_operation() -> None:
    found = [f"{each.at(node)}: {ast.unparse(node)}" for each in OUTSIDE for node in _questions_in(each.tree)]
    assert not found, "compare with the record: `eqn.op is store`"


def test_a_list_is_seen_wherever_it_stands() -> None:
    source = 'STOPS = frozenset({"barrier_wait", "dma_wait"})\nif name in ("exp", "log"): pass\n'
    assert [ast.unparse(node) for node in _lists_in(ast.parse(source))] == [
        "{'barrier_wait', 'dma_wait'}",
        "('exp', 'log')",
    ]
    assert not [*_lists_in(ast.parse('RULES = dict.fromkeys(("exp", "log"), rule)'))]
    assert not [*_lists_in(ast.parse('RULES = {name: rule for name in ("exp", "log")}\nx = ("add", "axis")'))]


def test_facts_are_seen_and_rules_are_none() -> None:
    facts = 'REDUCTION_OF = {"cumsum": "reduce_sum", "cummax": "reduce_max"}'
    assert [ast.unparse(node) for node in _facts_in(ast.parse(facts))] == [facts.partition(" = ")[2].replace('"', "'")]
    assert not [*_facts_in(ast.parse('RULES = {"cumsum": _scan(add), "cummax": _maximum, "sin": lambda x: x}'))]
    assert not [*_facts_in(ast.parse('LETTERS = {"copy": "C", "store": "S", "wgmma": "W"}'))]


def test_a_question_for_a_name_is_seen() -> None:
    source = 'a = eqn.op.name == "load"\nb = op.name.startswith("reduce_")\nc = op.name in RULES\nd = axis.name == "x"'
    assert [ast.unparse(node) for node in _questions_in(ast.parse(source))] == [
        "eqn.op.name == 'load'",
        "op.name.startswith",
    ]
