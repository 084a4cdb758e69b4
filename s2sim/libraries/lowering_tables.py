"""The communication libraries, each with its table of rules by kind, operation and type."""

from dataclasses import fields, replace
from functools import cache

from s2sim.collectives.timing.library_profile import NO_OVERHEADS
from s2sim.errors import OptionError, check_known, suggest_nearest
from s2sim.files import data_directory, is_toml_path, own_tables, read_table
from s2sim.libraries.constants import HOST_LIBRARIES, load_constants
from s2sim.libraries.gloo import HostLibraryProfile
from s2sim.libraries.library import TIMING, Library, LoweringRule, read_calibration
from s2sim.libraries.nccl import NcclProfile
from s2sim.options import split_option_string
from s2sim.registry import Registry
from s2sim.topology.quantity import Quantity


@cache
def _rules() -> dict[str, tuple[LoweringRule, ...]]:
    """Return the table of each library, of ``libraries/lowering.csv``; values of a cell stand between spaces."""
    columns = [field.name for field in fields(LoweringRule)]
    rules: dict[str, tuple[LoweringRule, ...]] = {}
    for _, cells in read_table(data_directory("libraries") / "lowering.csv", ("library", *columns)):
        kinds, ops, dtypes = (tuple(cells[name].split()) for name in ("kinds", "ops", "dtypes"))
        option, _, value = cells["when"].partition("=")
        when = (option, value) if option else None
        rule = LoweringRule(kinds, ops, dtypes, cells["does"], cells["why"], when, cells["carrier"])
        rules[cells["library"]] = (*rules.get(cells["library"], ()), rule)
    return rules


def _library(name: str) -> Library:
    tables = own_tables(__file__, "libraries.toml")
    rules = tables[name].get("like", name)
    facts = {key: value for key, value in (tables[rules] | tables[name]).items() if key not in ("like", "options")}
    options = tuple((key, tuple(values)) for key, values in tables[rules].get("options", {}).items())
    return Library(name, table=_rules()[rules], options=options, **({"in_flight": None} | facts))


_OWN = tuple(own_tables(__file__, "libraries.toml"))
LIBRARIES = Registry("library", "s2sim.libraries", {name: f"{__name__}:{name.upper()}" for name in _OWN})
IDEAL, NCCL, RCCL, GLOO, MPI = map(_library, _OWN)


def library_quantities(name: str) -> tuple[Quantity, ...]:
    """Return the constants of a library for ``timing=measured``, every value with its origin."""
    LIBRARIES.get(name)  # Refuses an unknown one
    if name not in (NCCL.name, RCCL.name, *HOST_LIBRARIES):
        raise OptionError(f"library {name} adds nothing to the wire: it has no constants")
    return load_constants(name).quantities


def choose_library(text: str) -> Library:
    """Return the library of an option string.

    >>> choose_library("nccl:or=owners").chosen
    (('or', 'owners'), ('gather', 'pad'), ('timing', 'auto'), ('launch', 'gpu'))
    >>> choose_library("nccl:or=bytes").option_string
    'nccl'
    """
    name, options = split_option_string(text)
    library: Library = LIBRARIES.get(name)
    values_of = dict(library.options)
    for key, value in options.items():
        check_known(key, values_of, f"library {name} has no option {key!r}")
        if value not in values_of[key] and not (key == TIMING and is_toml_path(value)):
            raise OptionError(f"library {name}: {key}={value} is unknown{suggest_nearest(value, values_of[key])}")
    chosen = {key: options.get(key, values[0]) for key, values in values_of.items()}
    timing = chosen.get(TIMING)
    calibration = None if timing is None or not is_toml_path(timing) else read_calibration(timing)
    if calibration is not None and calibration.base != name:
        raise OptionError(
            f"{timing} was fitted for {calibration.base}: give --library {calibration.base}:timing={timing}"
        )
    if "launch" in options and timing == "wire":
        raise OptionError(f"library {name}: launch={options['launch']} changes nothing with timing=wire: leave one out")
    measured = library.measured
    if name in HOST_LIBRARIES:
        measured = HostLibraryProfile(name, () if calibration is None else calibration.own)
    elif name in (NCCL.name, RCCL.name):
        measured = NcclProfile(name, one_process=chosen["launch"] == "node")
        if calibration is not None:
            measured = replace(measured, own=calibration.own, version=calibration.version)
    return replace(
        library,
        chosen=tuple(chosen.items()),
        given_options=tuple(options),
        measured=measured,
        profile=NO_OVERHEADS if measured is None or timing in ("auto", "wire") else measured,
        calibration=calibration,
    )
