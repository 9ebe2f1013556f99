"""The kinds of fields of a configuration: which may change when a run is resumed, whole numbers, names of plug-ins."""

import functools
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from az_mpi.core.registry import Registry, parse

LARGEST = 2**63 - 1  # the largest whole number allowed: int64 in messages and files


def fixed(default: Any, description: str, may_change: bool = False, may_rise: bool = False, **limits: Any) -> Any:
    """Return a field that a resumed run must not change (unless `may_change`), or not to less (`may_rise`)."""
    return Field(
        default, description=description, json_schema_extra={"may_change": may_change, "may_rise": may_rise}, **limits
    )


def free(default: Any, description: str, **limits: Any) -> Any:
    """Return a field that a resumed run may change."""
    return fixed(default, description, may_change=True, **limits)


def whole(low: int, high: int = LARGEST, **more: Any) -> Any:
    """Return the type of a whole number from `low` to `high`."""
    return Annotated[int, Field(ge=low, le=high, **more)]


def named(registry: Registry) -> Any:
    """Return the type of a name that is looked up in a registry."""
    return Annotated[str, registry, AfterValidator(functools.partial(_known, registry))]


def _known(registry, name):
    if problem := registry.problem(name):
        raise ValueError(problem)
    return name


def list_of(registry: Registry) -> Any:
    """Return the type of a list of names that are looked up in a registry."""
    item: Any = named(registry)
    # strict=False: a list of JSON is not a tuple
    return Annotated[tuple[item, ...], Field(strict=False), AfterValidator(_distinct)]


def _distinct(items):
    if len(set(items)) < len(items):
        raise ValueError("named twice")
    places: dict[str, str] = {}  # of the files, by what a class is called in results and in copies of the files
    for name in map(parse, items):
        if name.is_file and places.setdefault(name._replace(arguments={}).short(), name.place) != name.place:
            raise ValueError("two files of one name")
    return items


class Section(BaseModel):
    """Base of all sections: nothing unknown, nothing converted, nothing changed afterwards."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
