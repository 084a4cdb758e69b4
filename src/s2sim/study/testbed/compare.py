"""Predicts all that a folder of measured testbeds has with what one of its settings tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.errors import OptionError, S2SimError, nearest
from s2sim.study.progress import SILENT
from s2sim.study.testbed.break_even import break_even_of, calls_of
from s2sim.study.testbed.fit import fit_setting
from s2sim.study.testbed.predict import collective_s
from s2sim.study.testbed.reducers import codec_of, codec_s, exchange_s
from s2sim.study.testbed.result import Comparison, Point
from s2sim.testbed.measured_folder import KINDS

if TYPE_CHECKING:
    from s2sim.collectives.libraries.constants import Own
    from s2sim.study.progress import Progress
    from s2sim.study.testbed.reducers import Codec
    from s2sim.testbed.measured import Setting, Timed
    from s2sim.testbed.measured_folder import Kind, MeasuredTestbeds


def setting_named(measured: MeasuredTestbeds, name: str | None) -> Setting:
    """Return a setting by name; of those that measured collectives the first without one."""
    settings = {setting.name: setting for setting in measured.settings}
    if name is None:
        name = next((row.setting for row in measured.collectives), None)
        if name is None:
            raise S2SimError("no collective was measured, and no constants follow from anything else: measure some")
    if name not in settings:
        raise OptionError(f"no setting {name!r} was measured{nearest(name, settings)}")
    return settings[name]


def compare(measured: MeasuredTestbeds, calibrate_on: str | None = None, progress: Progress = SILENT) -> Comparison:
    """Return every measured time beside its prediction.

    Constants of the library are fitted to the collectives of one setting; what reducers take outside of collectives is
    what this setting measured, scaled. All else of any other setting is predicted.
    """
    chosen = setting_named(measured, calibrate_on)
    fit = fit_setting(chosen, measured.collectives, progress)
    settings = {setting.name: setting for setting in measured.settings}
    codecs = _codecs(measured, chosen, fit.own)
    rows = [(kind, row) for kind in KINDS for row in measured.of(kind)]
    progress.start(len(rows), "predicting")
    points, untold = [], set()
    for kind, row in rows:
        setting = settings[row.setting]
        if kind == "collectives":
            predicted_s = collective_s(setting, row.what, row.payload_bytes, fit.own)
        else:
            told = codecs.get((row.what, row.trace))
            untold |= {row.what} if told is None else set()
            predicted_s = row.compute_s + _reduced_s(setting, row, told, fit.own)
        points.append(_point(kind, setting, row, predicted_s, seen=setting == chosen))
        progress.advance()
    progress.stop()
    exchanged = [point for point in points if point.kind != "collectives"]
    notes = _notes(chosen, untold, exchanged=bool(exchanged))
    return Comparison(chosen.name, fit.constants, tuple(points), calls_of(exchanged), break_even_of(exchanged), notes)


def _codecs(measured: MeasuredTestbeds, setting: Setting, own: Own) -> dict[tuple[str, str], Codec]:
    rows = [row for row in (*measured.iterations, *measured.reducers) if row.setting == setting.name]
    return {(row.what, row.trace): codec_of(setting, row, own) for row in rows}


def _reduced_s(setting: Setting, row: Timed, told: Codec | None, own: Own) -> float:
    return exchange_s(setting, row.what, row.trace, own) + codec_s(setting, row, told)


def _point(kind: Kind, setting: Setting, row: Timed, predicted_s: float, *, seen: bool) -> Point:
    return Point(
        kind=kind,
        setting=setting.name,
        workers=setting.workers,
        nodes=setting.nodes,
        rate_Bps=setting.rate_Bps,
        uplink_Bps=setting.uplink_Bps,
        what=row.what,
        trace=row.trace,
        compute_s=row.compute_s,
        payload_bytes=row.payload_bytes,
        measured_s=row.median_s,
        low_s=row.low_s,
        high_s=row.high_s,
        predicted_s=predicted_s,
        seen=seen,
    )


def _notes(setting: Setting, untold: set[str], *, exchanged: bool) -> tuple[str, ...]:
    notes = []
    if exchanged:
        notes.append(
            f"codecs are NumPy on the processors that workers share: what {setting.name} measured beside exchanges, "
            "in proportion to the work that its script notes and to the workers for each processor"
        )
    if untold:
        notes.append(f"{setting.name} did not measure {', '.join(sorted(untold))}: codecs count nothing there")
    return tuple(notes)
