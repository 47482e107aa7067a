"""`jax.tree` and `jax.tree_util`: functions of nested containers, by way of `optree`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import optree

from palladio.base import trees

flatten = tree_flatten = trees.flatten
unflatten = tree_unflatten = trees.unflatten
register_pytree_node = trees.register
Partial = functools.partial


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a tree, from left to right."""
    return optree.tree_leaves(tree, is_leaf, namespace=trees.NAMESPACE)


def structure(tree: Any) -> Any:
    """A tree without its leaves."""
    return trees.flatten(tree)[1]


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """A tree of `f` of each leaf, and of the leaves of `rest` at its place."""
    return optree.tree_map(f, tree, *rest, is_leaf=is_leaf, namespace=trees.NAMESPACE)


def reduce(function: Callable[[Any, Any], Any], tree: Any, *initializer: Any) -> Any:
    """The leaves combined from left to right."""
    return functools.reduce(function, leaves(tree), *initializer)


def all(tree: Any) -> bool:
    """True if every leaf is."""
    return reduce(lambda found, leaf: found and bool(leaf), tree, True)


def register_pytree_node_class(kind: Any) -> Any:
    """A decorator of classes with `tree_flatten` and `tree_unflatten`."""
    trees.register(kind, lambda value: value.tree_flatten(), kind.tree_unflatten)
    return kind


def register_dataclass(kind: Any, data_fields: Any = None, meta_fields: Any = ()) -> Any:
    """Make a dataclass a container of its `data_fields`, by default all but the `meta_fields`."""
    if data_fields is None:
        data_fields = [name for name in kind.__dataclass_fields__ if name not in meta_fields]

    def apart(value: Any) -> tuple[Any, Any]:
        return [getattr(value, name) for name in data_fields], tuple(getattr(value, name) for name in meta_fields)

    def together(rest: Any, children: Any) -> Any:
        return kind(**dict(zip(data_fields, children)), **dict(zip(meta_fields, rest)))

    trees.register(kind, apart, together)
    return kind


tree_leaves, tree_structure, tree_map, tree_reduce, tree_all = leaves, structure, map, reduce, all
