"""The constants that a setting tells as a file for ``--library gloo:timing=FILE.toml``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.collectives.libraries.calibration import FittedRange
from s2sim.study.calibrate.profile_text import profile_text
from s2sim.study.testbed.predict import LIBRARY

if TYPE_CHECKING:
    from s2sim.study.testbed.fit import SettingFit


def setting_profile(fit: SettingFit) -> str:
    """Return the text of a TOML file that `s2sim.collectives.libraries.calibration.read_calibration` reads."""
    setting, sizes = fit.setting, [row.payload_bytes for row in fit.rows]
    fitted = FittedRange(
        topology=f"testbed-{setting.name}",
        collectives=tuple(dict.fromkeys(row.what for row in fit.rows)),
        workers=(setting.workers,),
        nodes=(setting.workers,),
        smallest_bytes=min(sizes),
        largest_bytes=max(sizes),
        points=len(sizes),
        median_error_before=fit.before,
        median_error_after=fit.after,
        versions=(),
        logs=(f"testbed {setting.name}, {setting.date}: {setting.command}",),
    )
    written = [(constant, value) for constant, (_, value) in zip(fit.constants, fit.own, strict=True)]
    origin = f"fitted to {len(sizes)} times of {setting.name} on {setting.machine}, PyTorch {setting.torch}"
    return profile_text(LIBRARY, written, fitted, origin)
