"""Import paths of version 0.1.0, which warn and work for one more version; ``moved.csv`` has modules and names."""

import sys
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType


@cache
def moved_modules() -> dict[str, tuple[str, dict[str, str]]]:
    """Return the new path of each old module, and the new names of those of its names that were changed."""
    import csv
    from pathlib import Path

    found: dict[str, tuple[str, dict[str, str]]] = {}
    with Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as file:
        for old, name, new in csv.reader(file):
            if name:
                found[old][1][name] = new
            else:
                found[old] = new, {}
    return found


class MovedFinder:
    """Finds old paths, as modules with the names of the new ones, after all other finders."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of an old module, or of a package of old ones; None for any other name."""
        if not fullname.startswith("s2sim."):
            return None
        is_package = any(old.startswith(f"{fullname}.") for old in moved_modules())
        if fullname not in moved_modules() and not is_package:
            return None
        return ModuleSpec(fullname, self, is_package=is_package)  # type: ignore[arg-type] # it loads without the base

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to the import system to make a module."""

    def exec_module(self, module: ModuleType) -> None:
        """Give an old module the names of the new one, under their old names too, and warn of it."""
        import warnings

        if module.__name__ not in moved_modules():
            return
        new, renamed = moved_modules()[module.__name__]
        message = f"{module.__name__} is {new} now; its old path goes with the next version"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        names = vars(import_module(new))
        for name, value in names.items():
            module.__dict__.setdefault(name, value)
        module.__dict__.update({old: names[name] for old, name in renamed.items()})


def install() -> None:
    """Let old import paths work."""
    sys.meta_path.append(MovedFinder())
