"""The settings of a method, for people: names, values, and what the code says about each of them."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin

from casper.config import Configuration


@dataclass(frozen=True)
class Setting:
    """takes: which values it may have, empty where its value shows it. values: its default, or one for each preset by
    name. meaning: may be empty."""

    name: str
    takes: str
    values: Mapping[str, Any]
    meaning: str


def settings_of(**configurations: Configuration) -> list[Setting]:
    """Every setting of configurations of one kind: its value in each of them, by the names they are given under."""
    kind = type(next(iter(configurations.values())))
    hints, words = typing.get_type_hints(kind), _docstrings(kind)
    held = {name: configuration.to_dict() for name, configuration in configurations.items()}
    return [
        Setting(name, _takes(hint), {given: values[name] for given, values in held.items()}, words.get(name, ""))
        for name, hint in hints.items()
    ]


def method_settings(name: str) -> dict[str, list[Setting]]:
    """Of an imputer, of a method of causal discovery, or of both if they share the name; by a heading for each part.

    An imputer without a network has none.
    """
    from casper.config import PRESETS
    from casper.discovery import DISCOVERERS
    from casper.errors import InputError
    from casper.methods import METHODS, has_network
    from casper.neural import NeuralImputer

    imputers, discoverers = tuple(METHODS), tuple(DISCOVERERS)
    if name not in (*imputers, *discoverers):
        known = ", ".join(dict.fromkeys((*imputers, *discoverers)))
        raise InputError(f"there is no method {name!r}; choose one of {known}")
    found: dict[str, list[Setting]] = {}
    if name == "casper":
        presets = PRESETS.items()
        found["casper fit, impute: the network"] = settings_of(**{preset: held.model for preset, held in presets})
        found["casper fit, impute: its training"] = settings_of(**{preset: held.training for preset, held in presets})
    elif name in imputers and has_network(name):
        method = METHODS[name]
        assert issubclass(method, NeuralImputer)
        found["casper fit, impute: the network"] = settings_of(default=method.recipe.model)
        found["casper fit, impute: its training"] = settings_of(default=method.recipe.training)
    if name in discoverers:
        found["casper discover"] = settings_of(default=DISCOVERERS[name].defaults)
    return found


def _takes(hint: Any) -> str:
    """Words, for choices and for what may be left open; a number or a switch is known when it is seen."""
    options = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if len(options) == 1 and get_origin(options[0]) is not Literal:
        return ""
    return " or ".join(_one_kind(option) for option in options)


def _one_kind(option: Any) -> str:
    if get_origin(option) is Literal:
        return ", ".join(map(str, get_args(option)))
    words = {int: "whole number", float: "number", bool: "true, false", str: "text", types.NoneType: "null"}
    return words.get(option, str(option))


def _docstrings(kind: type) -> dict[str, str]:
    """What stands below each field in the source: Python keeps it nowhere else."""
    found: dict[str, str] = {}
    for owner in reversed([one for one in kind.__mro__ if issubclass(one, Configuration)]):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
        except (OSError, TypeError):  # installed without its source
            continue
        body = typing.cast("ast.ClassDef", tree.body[0]).body
        for field, below in pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                found[field.target.id] = " ".join(inspect.cleandoc(below.value.value).split())
    return found
