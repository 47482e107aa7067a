"""Nested containers of leaves (pytrees): tuples, lists, dicts, named tuples and registered classes, by way of `optree`.

None is an empty container, as in JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optree

Tree = Any
Structure = optree.PyTreeSpec
NAMESPACE = "palladio"
"""The namespace in which container classes are registered."""


def register(kind: type, apart: Callable[[Any], tuple[Any, Any]], together: Callable[[Any, Any], Any]) -> None:
    """Make a class a container: `apart` gives the children and the rest, which `together` takes as (rest, children)."""
    optree.register_pytree_node(kind, apart, together, namespace=NAMESPACE)


@functools.cache
def row(count: int) -> Structure:
    """The structure of a tuple of leaves."""
    return flatten((0,) * count)[1]


def flatten(tree: Tree) -> tuple[list[Any], Structure]:
    """The leaves of a tree, from left to right, and its structure."""
    leaves, structure = optree.tree_flatten(tree, namespace=NAMESPACE)  # type: ignore[type-var]
    return list(leaves), structure


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Tree:
    """The tree of this structure with these leaves."""
    return optree.tree_unflatten(structure, leaves)


def replaced(tree: Tree, kind: type, by: Callable[[Any], Any]) -> Tree:
    """The tree with `by(value)` in place of every value of a class, a leaf or a container."""
    return optree.tree_map(
        lambda leaf: by(leaf) if isinstance(leaf, kind) else leaf,
        tree,
        is_leaf=lambda value: isinstance(value, kind),
        namespace=NAMESPACE,
    )


def shown(structure: Structure | None) -> str:
    """A structure as errors show it, `*` standing for a leaf: `(*, {'bias': *})`; `nothing` for None."""
    text = str(structure).removeprefix("PyTreeSpec(").removesuffix(")")
    return {"None": "nothing", "*": "one value"}.get(text, text)


def leaf_names(tree: Tree, root: str = "") -> list[str]:
    """The Python expression for each leaf: `root[0]['weights']`."""
    return [root + "".join(f"[{key!r}]" for key in path) for path in optree.tree_paths(tree, namespace=NAMESPACE)]


def spread(prefix: Tree, tree: Tree, is_entry: Callable[[Any], bool]) -> list[Any] | None:
    """For each leaf of a tree, the entry of a prefix tree that covers it.

    None if the structure of the prefix differs from the tree's.
    """
    if is_entry(prefix):
        return [prefix] * len(flatten(tree)[0])
    if isinstance(prefix, (tuple, list)) and isinstance(tree, (tuple, list)) and len(prefix) == len(tree):
        parts = [spread(*pair, is_entry) for pair in zip(prefix, tree, strict=True)]
    elif isinstance(prefix, Mapping) and isinstance(tree, Mapping) and prefix.keys() == tree.keys():
        parts = [spread(prefix[key], tree[key], is_entry) for key in sorted(tree)]
    else:
        return None
    return None if None in parts else [entry for part in parts for entry in part or ()]
