"""`palladio.base.dataclass`: its classes behave like those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, get_type_hints

import pytest

from palladio.base.dataclass import dataclass

Decorator = Callable[..., Any]


def plain(make: Decorator, **options: bool) -> type[Any]:
    class Plain:
        number: ClassVar[int] = 3
        first: int
        second: str = "two"
        third: list[int] = field(default_factory=list)

    return make(**options)(Plain)


def without_fields(make: Decorator, **options: bool) -> type[Any]:
    class Empty:
        """Nothing."""

    return make(**options)(Empty)


def of_one_field(make: Decorator, **options: bool) -> type[Any]:
    class One:
        only: float

    return make(**options)(One)


def hidden_fields(make: Decorator, **options: bool) -> type[Any]:
    class Hidden:
        shown: int
        unseen: int = field(default=0, repr=False)
        ignored: int = field(default=0, compare=False)
        named: int = field(default=7, kw_only=True)
        unhashed: int = field(default=0, hash=False)
        made: list[int] = field(default_factory=list, init=False, compare=False)
        later: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "later", self.shown + 1)

    return make(**options)(Hidden)


def own_methods(make: Decorator, **options: bool) -> type[Any]:
    class Own:
        x: int

        def __init__(self, x: int) -> None:
            object.__setattr__(self, "x", x + 1)

        def __repr__(self) -> str:
            return f"<{self.x}>"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, int) and other == self.x

        def __hash__(self) -> int:
            return 5

    return make(**options)(Own)


def derived(make: Decorator, **options: bool) -> type[Any]:
    class Base:
        x: int
        y: int = 1

    class Middle(make(**options)(Base)):  # type: ignore[misc]
        """It adds a method and no field."""

        def total(self) -> Any:
            return self.x + self.y

    class Derived(Middle):
        y: int = 2
        z: int = 3

    return make(**options)(Derived)


def own_assignment(make: Decorator, **options: bool) -> type[Any]:
    class Own:
        x: int

        def __setattr__(self, name: str, value: object) -> None:
            object.__setattr__(self, name, value)

    return make(**options)(Own)


def fixed(make: Decorator, **options: bool) -> type[Any]:
    class Fixed:
        x: int = field(init=False, default=3)
        _set: int = 4
        _factory: list[int] = field(default_factory=list)

    return make(**options)(Fixed)


CLASSES = (plain, without_fields, of_one_field, hidden_fields, own_methods, own_assignment, fixed, derived)
OPTIONS: tuple[dict[str, bool], ...] = (
    {},
    {"frozen": True},
    {"eq": False},
    {"frozen": True, "eq": False},
    {"unsafe_hash": True},
    {"repr": False},
    {"kw_only": True},
    {"frozen": True, "kw_only": True},
    {"init": False},
    {"slots": True},
    {"frozen": True, "init": False, "eq": False},
)
CALLS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((), {}),
    ((1,), {}),
    ((2,), {}),
    ((float("nan"),), {}),
    ((1, 2), {}),
    ((1, 2, 3), {}),
    ((1, 2, 3, 4, 5, 6), {}),
    ((), {"first": 1, "third": [4]}),
    ((), {"x": 1}),
    ((), {"only": 1}),
    ((), {"shown": 1, "named": 3, "unseen": 4}),
    ((), {"shown": 1, "ignored": 3, "unhashed": 9}),
    ((), {"made": []}),
)


def state(made: Any) -> dict[str, Any]:
    """The attributes that an object has of its own, and those of its slots."""
    slots = {each.name: getattr(made, each.name) for each in fields(made) if hasattr(made, each.name)}
    return getattr(made, "__dict__", {}) | slots


def outcome(run: Callable[[], Any]) -> Any:
    """What `run` gives, or its error; without the names of functions that contain the classes."""
    try:
        return run()
    except Exception as error:
        return type(error), str(error)


def attempts(made: type[Any]) -> list[Any]:
    """Objects of a class, each by another call, or the errors."""
    return [outcome(lambda each=each: made(*each[0], **each[1])) for each in CALLS]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("define", CLASSES)
def test_a_class_behaves_like_one_of_the_standard_library(define: Callable[..., Any], options: dict[str, bool]) -> None:
    ours, theirs = (outcome(lambda each=each: define(each, **options)) for each in (dataclass, dataclasses.dataclass))
    if isinstance(theirs, tuple):
        assert ours[0] is theirs[0]
        return
    assert [(each.name, each.type, each.kw_only) for each in fields(ours)] == [
        (each.name, each.type, each.kw_only) for each in fields(theirs)
    ]
    assert ours.__match_args__ == theirs.__match_args__
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    if options.get("init") is not False:
        assert get_type_hints(ours.__init__) == get_type_hints(theirs.__init__)
    made, expected = attempts(ours), attempts(theirs)
    addresses = options.get("repr") is False  # then a text has the address of its object
    for mine, other in zip(made, expected, strict=True):
        assert isinstance(mine, ours) == isinstance(other, theirs)
        if not isinstance(mine, ours):
            assert mine == other
            continue
        assert str(state(mine)) == str(state(other))
        if not (addresses or options.get("init") is False):
            assert repr(mine) == repr(other)
        for change in ({"x": 9}, {"first": 9}, {"named": 9}, {"unknown": 9}):
            changed, wanted = outcome(lambda: replace(mine, **change)), outcome(lambda: replace(other, **change))  # noqa: B023
            assert isinstance(changed, ours) == isinstance(wanted, theirs)
            assert changed == wanted or isinstance(changed, ours)
        assert isinstance(outcome(lambda: hash(mine)), int) == isinstance(outcome(lambda: hash(other)), int)  # noqa: B023
        for name in ("x", "first", "unknown"):
            assert outcome(lambda: setattr(mine, name, 1)) == outcome(lambda: setattr(other, name, 1))  # noqa: B023
            assert outcome(lambda: delattr(mine, name)) == outcome(lambda: delattr(other, name))  # noqa: B023
            assert state(mine).keys() == state(other).keys()
    fresh, also = attempts(ours), attempts(theirs)
    for i, (mine, other) in enumerate(zip(fresh, also, strict=True)):
        equal = [outcome(lambda j=j: mine == fresh[j]) for j in range(i)]  # noqa: B023
        assert equal == [outcome(lambda j=j: other == also[j]) for j in range(i)]  # noqa: B023
        if isinstance(outcome(lambda: hash(mine)), int):  # noqa: B023
            assert all(hash(mine) == hash(fresh[j]) for j in range(i) if equal[j] is True)


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0

    @cached_property
    def norm(self) -> int:
        return self.x * self.x + self.y * self.y


@dataclass(slots=True)
class Slots:
    x: int
    y: int = 0


@dataclass(frozen=True, slots=True)
class FrozenSlots:
    x: int
    y: int = 0


@pytest.mark.parametrize("made", [Point(1, 2), Slots(1, 2), FrozenSlots(1, 2)], ids=repr)
def test_objects_are_copied_and_pickled(made: Any) -> None:
    assert copy.copy(made) == copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made
    assert is_dataclass(made)
    assert replace(made, y=5).y == 5


def test_slots_have_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        Slots(1).z = 3  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        FrozenSlots(1).x = 3  # type: ignore[misc]


def test_a_frozen_object_keeps_what_is_cached() -> None:
    point = Point(3, 4)
    assert point.norm == 25
    assert "norm" in point.__dict__
    match point:
        case Point(x, y):
            assert (x, y) == (3, 4)


def test_equal_arrays_are_compared_by_identity_first() -> None:
    """One value is compared as a tuple of it: an object that is not equal to itself is, in the same place."""
    made = of_one_field(dataclass)
    nan = float("nan")
    assert made(nan) == made(nan)


@pytest.mark.parametrize("frozen", [False, True])
def test_classes_derive_from_those_of_the_standard_library_and_it_from_ours(frozen: bool) -> None:
    for base, leaf in ((dataclass, dataclasses.dataclass), (dataclasses.dataclass, dataclass)):

        class Base:
            x: int

        made = base(frozen=frozen)(Base)  # type: ignore[operator]

        class Leaf(made):  # type: ignore[misc,valid-type]
            y: int = 2

        with pytest.raises(TypeError, match="frozen"):
            leaf(frozen=not frozen)(type("Wrong", (made,), {}))  # type: ignore[operator]
        found = leaf(frozen=frozen)(Leaf)(1)  # type: ignore[operator]
        assert (found.x, found.y) == (1, 2)
        if frozen:
            with pytest.raises(FrozenInstanceError):
                found.x = 2
