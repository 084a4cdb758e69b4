"""Does compression pay? In 6 of more than 200 set-ups, Agarwal et al. found; here in how many, and where."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import median_high

from s2sim.claims import grid
from s2sim.claims.paper import Chart, Line, PaperEffort, PaperPart, PaperTexts, judge_conditions, on_both_bases
from s2sim.experiment.progress import ProgressWatcher

_TEXTS = PaperTexts("does-it-pay")
_WINS, _SETUPS = 6, 200
MAX_SHARE = 2 * _WINS / _SETUPS
"""Twice the published share: up to here a count is as small as theirs."""
_RULE = {"published": grid.share_text(_WINS, _SETUPS), "share": MAX_SHARE, "margin": grid.MARGINS[0]}


def _place(name: str, topology: str, overrides: Sequence[str] = (), gpu: str | None = None) -> grid.ClusterSetting:
    return grid.ClusterSetting(name, topology, tuple(overrides), gpu)


_THEIRS, _OURS = _TEXTS.figures["theirs"], _TEXTS.figures["ours"]
_P3, _HOOKS, _THEIR_MODELS = _place(**_THEIRS["place"]), tuple(_THEIRS["reducers"]), _THEIRS["models"]
_SERIAL = tuple(text.replace(",granularity=layer", "") for text in _HOOKS)
_HOST_LOOPS = (None, "100us", "300us")

REDUCERS: tuple[str, ...] = tuple(_OURS["reducers"])
PLACES = tuple(_place(**place) for place in _OURS["places"])
_DATA_CENTRE = tuple(place.name for place in PLACES[2:])
_MODELS, _MORE_MODELS = (tuple(_OURS[name].items()) for name in ("models", "more_models"))
_RATES_GBPS = (10, 25, 50, 100, 200, 400)
_FULL_GBPS = 100
_MORE_RATES_GBPS = (1, 2, 5, 10, 25, 50, 100, 200, 400, 800)


def _published_setups(effort: PaperEffort, progress: ProgressWatcher) -> PaperPart:
    counts = (16,) if effort.quick else (8, 16, 32, 64)
    progress.start(len(counts) * len(_THEIR_MODELS), "iterations on p3.8xlarge, by each order and cost of the host")
    by_host: dict[str | None, list[grid.SettingGain]] = {host: [] for host in _HOST_LOOPS}
    for workers in counts:
        hooks, serial = grid.GridRecorder(_HOOKS, workers), grid.GridRecorder(_SERIAL, workers, "after-backward")
        for model, batches in _THEIR_MODELS.items():
            for batch in batches:
                for host, gains in by_host.items():
                    overlapped = hooks.gains(model, _P3, batch, host)
                    # What is compared with always overlaps, as PyTorch's DDP does.
                    dense_s = overlapped[0].dense_s
                    later = [
                        replace(gain, dense_s=dense_s, reducer=f"{gain.reducer}, after backward")
                        for gain in serial.gains(model, _P3, batch, host)
                    ]
                    gains += [*overlapped, *later]
            progress.advance()
    won = {host: len(grid.winning_gains(gains, grid.MARGINS[0])) for host, gains in by_host.items()}
    setups = len(by_host[None])
    names = {host: "kernels alone" if host is None else f"{host} of the host a tensor" for host in _HOST_LOOPS}
    least, most = (grid.share_text(of(won.values()), setups) for of in (min, max))
    ours = "; ".join(f"{names[host]}: {grid.share_text(count, setups)}" for host, count in won.items())
    largest = [gain for gain in by_host["300us"] if gain.batch == _THEIR_MODELS[gain.model][-1]]
    winners = grid.winning_gains(largest, grid.MARGINS[0])
    winner_names = sorted({f"{gain.model} with {gain.reducer.partition(':')[0]}" for gain in winners})
    claims = (
        _TEXTS.claim(
            "setups",
            min(won.values()) <= MAX_SHARE * setups,
            ours=ours,
            largest=grid.share_text(len(winners), len(largest)),
            winners=", ".join(winner_names) or "none",
            **_RULE,
        ),
        _TEXTS.claim("most", judge_conditions(count < setups / 2 for count in won.values()), most=most, least=least),
    )
    tables = []
    for host, gains in by_host.items():
        by_batch = grid.table_by("model and mini-batch", lambda gain: f"{gain.model}, batch {gain.batch}", gains)
        tables.append(replace(by_batch, title=f"p3.8xlarge, {names[host]}: {by_batch.title.lower()}"))
    models, numbers = ", ".join(_THEIR_MODELS), " and ".join(map(str, counts))
    setup = _TEXTS.line("their-setups", setups=setups, models=models, hooks=len(_HOOKS) - 1, counts=numbers)
    return PaperPart(claims, tuple(tables), (), (setup,), (_TEXTS.line("batches"), _TEXTS.line("host")))


def _over_clusters(effort: PaperEffort, progress: ProgressWatcher) -> PaperPart:
    models = _MODELS if effort.quick else (*_MODELS, *_MORE_MODELS)
    rates = _RATES_GBPS if effort.quick else _MORE_RATES_GBPS
    workers = 16 if effort.quick else 32
    recorder = grid.GridRecorder(REDUCERS, workers, effort=effort)
    progress.start(len(models) * (len(PLACES) + 1), f"iterations of {len(models)} models on {len(PLACES)} clusters")
    gains: list[grid.SettingGain] = []
    by_rate: list[list[grid.SettingGain]] = [[] for _ in rates]
    for model, batches in models:
        for place in PLACES:
            for batch in batches:
                gains += recorder.gains(model, place, batch)
            progress.advance()
        for rate, at_rate in zip(rates, by_rate, strict=True):
            place = grid.ClusterSetting(f"{rate} Gb/s", "fat-tree", (f"nic.rate={rate}Gbps",))
            at_rate += [gain for gain in recorder.gains(model, place, batches[1]) if gain.trusted()]
        progress.advance()
    trusted = [gain for gain in gains if gain.trusted()]
    there = [gain for gain in gains if gain.cluster in _DATA_CENTRE]
    won = grid.winning_gains([gain for gain in there if gain.trusted()], grid.MARGINS[0])
    middle = median_high(gain.speedup for gain in won) if won else 1.0
    by_count = sorted(((count, name) for name, count in Counter(gain.model for gain in won).items()), reverse=True)
    where_most = ", ".join(f"{name} {count}" for count, name in by_count)
    settings = {gain.setting for gain in gains}
    best = grid.best_of(trusted)
    winning, clearly = (len(grid.winning_gains(best.values(), margin)) for margin in grid.MARGINS[:2])
    shares = ", ".join(f"{_share(own):.0%} at {rate} Gb/s" for rate, own in zip(rates, by_rate, strict=True))
    at_full = _share(by_rate[rates.index(_FULL_GBPS)])
    claims = (
        _TEXTS.claim(
            "data-centre",
            len(won) <= MAX_SHARE * len(there),
            won=grid.share_text(len(won), len(there)),
            middle=f"{middle - 1:.0%}" if won else "nothing",
            where_most=where_most or "nowhere",
            **_RULE,
        ),
        _TEXTS.claim("fully-used", at_full < 1 / 2, margin=grid.MARGINS[1], shares=shares, rate=_FULL_GBPS),
    )
    many = {"models": len(models), "places": len(PLACES), "reducers": len(REDUCERS) - 1, "workers": workers}
    counted = {"winning": grid.share_text(winning, len(settings)), "clearly": grid.share_text(clearly, len(settings))}
    setup = (
        _TEXTS.line("setups", setups=len(gains), **many),
        _TEXTS.line("winning", least=grid.MARGINS[0], more=grid.MARGINS[1], **counted),
        _TEXTS.line("trusted"),
    )
    tables = (
        grid.filter_table(gains),
        grid.table_by("cluster", lambda gain: gain.cluster, trusted),
        grid.table_by("reducer", lambda gain: gain.reducer, gains),
        grid.table_by("model and mini-batch", lambda gain: f"{gain.model}, batch {gain.batch}", trusted),
    )
    pictures = (
        grid.best_map("Speed-up over dense of the fastest reducer whose error can be trusted", trusted),
        grid.median_map("Median speed-up over dense of each reducer, over models and mini-batches", gains),
        _rate_chart(rates, by_rate),
    )
    return PaperPart(claims, tables, pictures, setup)


def _share(gains: Sequence[grid.SettingGain], margin: float = grid.MARGINS[1]) -> float:
    best = grid.best_of(gains)
    return len(grid.winning_gains(best.values(), margin)) / len(best)


def _rate_chart(rates: Sequence[int], by_rate: Sequence[Sequence[grid.SettingGain]]) -> Chart:
    x = tuple(map(float, rates))
    lines = tuple(
        Line(f"something gains over {margin:.0%}", x, tuple(100 * _share(own, margin) for own in by_rate))
        for margin in grid.MARGINS
    )
    title, x_axis = "Where compression pays, by the network's rate", "rate of a node's interface in Gb/s"
    return Chart(title, x_axis, "settings in %", lines, log_x=True)


PAPER = _TEXTS.paper(_published_setups, on_both_bases(_over_clusters))
