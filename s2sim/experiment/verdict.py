"""The answer in three lines: what to do; how much that gains, on what; what would change it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap, zip_longest

from s2sim import units
from s2sim.experiment.break_even import LOWEST_BPS, BreakEvenScan
from s2sim.experiment.choice import ONLY_TRAINING, Candidate, Choice, candidates_of, choose, exposed_share
from s2sim.experiment.judgement import judge
from s2sim.experiment.robustness import find_sensitive_constants, interval_robustness, interval_texts, over_workers
from s2sim.experiment.row_parts import CountPays, Flip, Verdict
from s2sim.experiment.rows import Row
from s2sim.experiment.run_state import RunState
from s2sim.experiment.scenario.cluster import ESTIMATES
from s2sim.experiment.scenario.reducers import ReducerScenario
from s2sim.experiment.spec import CodecBasis, RunSpec
from s2sim.libraries.lowering import IDEAL
from s2sim.simulation.bucketing.sharded import ShardedDiscipline
from s2sim.uncertainty.interval import errors_known

CODECS_AS = {"published": "codecs as published code", "framework": "codecs as a framework starts them"}


def describe_overlap(dense: Row, compute: str | None) -> str | None:
    """Return the overlap of an iteration of dense as text, with ``compute``, its origin; None for a phase."""
    if dense.iteration is not None:
        iteration = dense.iteration
        streams = ", codec beside compute" if iteration.streams > 1 else ""
        whose = "" if compute is None else f", {compute}"
        return f"{iteration.discipline} in {units.format_number_of(iteration.buckets, 'bucket')}{streams}{whose}"
    if dense.iteration_s is None:
        return None
    return f"{units.format_seconds(dense.iteration_s - dense.time_s.total)} of compute without overlap"


def describe_hidden(dense: Row, behind: str) -> str | None:
    """Return the share of dense's communication that is hidden behind ``behind`` as text; None if nothing is."""
    if dense.iteration is None or not dense.iteration.hidden_communication:
        return None
    return f"dense hides {units.format_percent(dense.iteration.hidden_share)} of its communication behind {behind}"


# The least share that is shown, in tenths of a per cent.
_LISTED_SHARE = 5e-4


@dataclass(frozen=True, slots=True)
class VerdictContext:
    """The inputs of a verdict besides rows."""

    library: str = IDEAL.option_string  # The communication library
    gpu: str = ""  # Name of the GPU
    codec_as: CodecBasis = "kernels"  # What codecs cost
    max_error: float | None = None  # Largest relative L2 error that may win
    steps: int = 1  # Successive steps that ran
    scan: BreakEvenScan = field(default_factory=lambda: BreakEvenScan(None))  # Where reducers break even with dense
    flips: tuple[Flip, ...] = ()  # Estimated constants that decide
    compute_origin: str | None = None  # From what the rows are extrapolated
    faults: tuple[str, ...] = ()  # What befalls the cluster, by name
    pays_over: tuple[CountPays, ...] = ()  # With which numbers of workers and which mini-batches reducers pay
    # compute, behind: whose compute an iteration has, where that is simulated; and what of it communication may hide
    # behind
    compute: str | None = None
    behind: str = "backward"
    unsure: str = ""  # With what it is not known how far off times may be


def give_verdict(rows: Sequence[Row], known: VerdictContext) -> Verdict:
    """Return the verdict on the rows of one number of workers, ``dense`` among them."""
    candidates = candidates_of(rows, known.max_error)
    choice = choose(candidates, known.max_error)
    dense = next(row for row in rows if row.baseline)
    baseline = next(each for each in candidates if each.baseline)
    best = choice.best.name if choice.decision == "use" else baseline.name
    sure = interval_robustness(rows, candidates, known.max_error) if len(rows) > 1 and dense.workers > 1 else None
    unsure = f"how far off times may be is not known with {known.unsure}" if known.unsure else ""
    sureness = unsure if sure is None else sure.sentence(best, choice.decision)
    if dense.workers == 1:
        lines: tuple[str, ...] = ("Do not compress: 1 worker communicates nothing.",)
    elif len(rows) == 1:
        lines = ("Nothing was compared with dense: name reducers with --reducer.",)
    else:
        action = _action_line(choice, candidates, dense, known)
        qualifier = "" if sure is None or choice.decision == "undecided" else sure.qualifier(best)
        lines = (
            f"{qualifier}{action[0].lower()}{action[1:]}" if qualifier else action,
            _gain_line(choice, baseline, dense, known, interval_texts(rows)),
            _sensitivity_line(choice, known, sureness),
        )
    lossy = choice.lossy or (None if choice.without is None else choice.without.lossy)
    return Verdict(
        workers=dense.workers,
        decision=choice.decision,
        lines=lines,
        text=" ".join(lines),
        best=best,
        assumes=choice.best.assumes if choice.decision == "use" else None,
        without_assumption=None if choice.without is None else choice.without.best.name,
        best_exact=choice.exact.name,
        best_lossy=None if lossy is None else lossy.name,
        flips=known.flips,
        pays={reducer: text for reducer in known.scan.pays_at_ends if (text := pays_text(reducer, known.scan))},
        break_even=known.scan.crossings,
        bottleneck=dense.bottleneck,
        probability=None if sure is None else sure.share_of(best),
        sureness=sureness,
        pays_over=known.pays_over,
    )


def _action_line(choice: Choice, candidates: Sequence[Candidate], dense: Row, known: VerdictContext) -> str:
    max_error, hidden = known.max_error, describe_hidden(dense, known.behind)
    baseline = next(each for each in candidates if each.baseline)
    exact = any(each.exact and not each.baseline for each in candidates)
    unjudged = _unjudged_text(candidates, choice.best if choice.decision == "use" else baseline, baseline)
    if choice.decision == "undecided":
        if choice.doubtful is not None:
            return f"Undecided: {_too_small_gain_text(choice.doubtful, baseline)}{unjudged}."
        close = choice.runner_up
        assert close is not None
        gain = baseline.time_s / close.time_s - 1
        also = "" if hidden is None else f"; {hidden}"
        return f"Undecided: {close.name} gains {gain:.1%}, which is too little for this model to tell{also}{unjudged}."
    if choice.decision == "do not compress":
        compared = "" if exact else "that was compared "
        if hidden is not None and baseline.unbeatable:
            fastest_s = min(each.time_s for each in candidates if each.rejected is None)
            share = max(exposed_share(dense), 1 - fastest_s / baseline.time_s)
            left = f", and {share:.1%} of an iteration is left to gain" if share >= _LISTED_SHARE else ""
            return f"Do not compress: {hidden}{left}."
        faster = f"nothing {compared}with an acceptable error is faster"
        found = f"{faster} than dense" if hidden is None else f"{hidden}, and {faster}"
        return f"Do not compress: {found}{unjudged}."
    text = f"Use {with_reason(choice.best, max_error)}"
    if choice.without is not None:
        text += f", else {_fallback_text(choice.without, choice.lossy, max_error)}"
    fallback = None if choice.without is None else choice.without.best
    if choice.lossy not in (None, choice.best, fallback):
        text += f"; or {with_reason(choice.lossy, max_error)}"
    if choice.doubtful is not None:
        text += f"; {_too_small_gain_text(choice.doubtful, baseline)}"
    elif choice.exact.baseline:
        text += "; nothing exact is clearly faster than dense" if exact else "; nothing exact was compared with dense"
    return f"{text}{unjudged}."


def _unjudged_text(candidates: Sequence[Candidate], chosen: Candidate, baseline: Candidate) -> str:
    """Return the fastest that no error judges, such as models of their own, if it gains on what is chosen."""
    of_training = [each for each in candidates if (each.rejected or "").endswith(ONLY_TRAINING)]
    fastest = min(of_training, key=lambda each: each.time_s, default=chosen)
    if not fastest.gains_on(chosen) or not fastest.time_s:
        return ""
    return f"; {ONLY_TRAINING} whether {fastest.name}, {baseline.time_s / fastest.time_s:.2f}x as fast, learns as well"


def _too_small_gain_text(doubtful: Candidate, baseline: Candidate) -> str:
    return f"{doubtful.name} gains {baseline.time_s / doubtful.time_s:.2f}x, less than {doubtful.doubted} may be off"


def _fallback_text(without: Choice, told: Candidate | None, max_error: float | None) -> str:
    """Return the choice without an assumption; a lossy reducer that is ``told`` already is not repeated."""
    if without.decision != "use":
        return without.decision
    if without.best is not without.exact:
        return with_reason(without.best, max_error)
    if without.lossy in (None, told):
        return without.exact.name
    return f"{without.exact.name}, or {with_reason(without.lossy, max_error)}"


def with_reason(candidate: Candidate, max_error: float | None) -> str:
    """Return a reducer's name with its loss and the conditions of its use."""
    conditions = [] if candidate.assumes is None else [candidate.assumes]
    error, allowed = _error_text(candidate), "" if max_error is None else f", allowed {max_error:g}"
    if candidate.exact:
        loses = " (exact)"
    elif candidate.feedback:
        loses = f" with error feedback (error {error} in one step{allowed})"
        conditions.insert(0, "training confirms it")
    elif max_error is None:
        loses = ""
        conditions.insert(0, f"an error of {error} is acceptable")
    else:
        loses = f" (error {error}{allowed})"
        if candidate.error_range is not None and candidate.error_range[1] > max_error:
            conditions.insert(0, f"its error on your gradients is at most {max_error:g}")
    return f"{candidate.name}{loses}{' if ' if conditions else ''}{' and '.join(conditions)}"


def _error_text(candidate: Candidate) -> str:
    """Return an error, or between what it lies; beyond that of zeros it is no matter how far."""
    ends = candidate.error_range or [candidate.loss]
    return " to ".join("1 or more" if each > 1 else units.format_ratio(each, 2) for each in ends)


def _gain_line(choice: Choice, baseline: Candidate, dense: Row, known: VerdictContext, bands: Mapping[str, str]) -> str:
    """Return the gain of the choice; ``bands`` are the intervals of times by name."""
    unit = "Communication" if dense.iteration_s is None else "Iteration"
    where = _scope_text(dense, known)

    def time(each: Candidate) -> str:
        return f"{units.brief_seconds(each.time_s)}{bands.get(each.name, '')}"

    def gain(each: Candidate) -> str:
        return f"{baseline.time_s / each.time_s:.2f}x" if each.time_s else "free"

    if choice.decision != "use":
        if (close := choice.doubtful or choice.runner_up) is None:
            return f"{unit} {time(baseline)}; {where}."
        return f"{unit} {time(baseline)} -> {time(close)} with {close.name}, {gain(close)}; {where}."
    best, without = choice.best, choice.without
    others = []
    if without is not None and not without.best.baseline:
        others.append(f"else {gain(without.best)}")
    lossy = [choice.lossy, None if without is None else without.lossy]
    told = (best, None if without is None else without.best)
    others += [f"{each.name} {gain(each)}" for each in dict.fromkeys(lossy) if each is not None and each not in told]
    also = f" ({', '.join(others)})" if others else ""
    return f"{unit} {time(baseline)} -> {time(best)}: {gain(best)}{also}; {where}."


def _scope_text(dense: Row, known: VerdictContext) -> str:
    machines = f"{known.library}{' library' if known.library == IDEAL.option_string else ''}"
    # Of an iteration the compute says that.
    on_gpu = f" on {known.gpu}" if known.gpu and dense.iteration is None else ""
    parts = [f"{dense.workers} workers", f"{machines}{on_gpu}"]
    if known.codec_as != "kernels":
        parts.append(CODECS_AS[known.codec_as])
    if (overlap := describe_overlap(dense, known.compute)) is not None:
        parts.append(overlap)
    if known.faults:
        parts.append(f"with {' and '.join(known.faults)}")
    if dense.steps:
        parts.append(f"median of {known.steps} steps with feedback")
    if known.compute_origin is not None:
        parts.append(known.compute_origin)
    return ", ".join(parts)


def _sensitivity_line(choice: Choice, known: VerdictContext, in_band: str) -> str:
    """Return the changes that would alter the choice, and its share in the interval."""
    effects = {"dense": "rule out compressing", "undecided": "leave it undecided"}
    parts = [
        f"{ESTIMATES[flip.constant]['text'].format(flip.value)} ({flip.taken} is an estimate) would "
        f"{effects.get(flip.best, f'make it {flip.best}')}"
        for flip in known.flips
    ]
    about = choice.best if choice.decision == "use" else choice.runner_up
    if choice.decision == "undecided":
        parts.append("only a measurement decides")
    else:
        parts += _pays_lines([about, None if choice.without is None else choice.without.best], known)
        if known.scan.ceiling is not None:
            rate_Bps, limit = known.scan.ceiling
            parts.append(f"above {units.format_rate(rate_Bps)} {limit} limits communication")
    if choice.faster is not None:
        more = choice.best.time_s / choice.faster.time_s
        faster = f"{choice.faster.name}, {more:.2f}x as fast as {choice.best.name}"
        if choice.faster.feedback:
            parts.append(f"training has to tell whether error feedback allows {faster}")
        else:
            parts.append(f"an error of {_error_text(choice.faster)} allows {faster}")
    if not parts:
        parts.append("no rate changes that" if choice.runner_up is None else "other rates were not tried")
    text = "; ".join([*parts, *([in_band] if in_band else [])])
    starts_with_name = about is not None and text.startswith(about.name)
    return f"{text if starts_with_name else f'{text[0].upper()}{text[1:]}'}."


def _pays_lines(candidates: Sequence[Candidate | None], known: VerdictContext) -> list[str]:
    """Return where candidates pay, those that do so alike together; nothing of those that were not searched."""
    names: dict[str, list[str]] = {}
    for each in filter(None, candidates):
        at_rates = pays_text(each.name, known.scan)
        found = [] if at_rates is None else [at_rates.removeprefix("pays ")]
        found += [item.text for item in known.pays_over if item.reducer == each.name]
        if found:
            names.setdefault(" and ".join(found), []).append(each.name)
    return [f"{' and '.join(same)} {'pays' if len(same) == 1 else 'pay'} {where}" for where, same in names.items()]


def pays_text(reducer: str, scan: BreakEvenScan) -> str | None:
    """Return the rates at which a reducer pays as text; None if not searched."""
    if scan.field is None or reducer not in scan.pays_at_ends:
        return None
    if reducer in scan.rejected:
        return f"pays at no {scan.field}: {scan.rejected[reducer]}"
    given = " in these buckets" if scan.same_buckets else ""
    crossings = sorted(crossing.at_Bps for crossing in scan.crossings if crossing.reducer == reducer)
    pays_first = scan.pays_at_ends[reducer][0]
    if not crossings:
        often = "pays at any" if pays_first else "pays at no"
        ends = " to ".join(map(units.format_rate, (LOWEST_BPS, scan.highest_Bps)))
        return f"{often} {scan.field} from {ends}{given}"
    edges = [*([None] if pays_first else []), *crossings]
    spans = list(starmap(_span, zip_longest(edges[::2], edges[1::2])))
    return f"pays {units.enumerate_words(spans)} of {scan.field}{given}"


def _span(low: float | None, high: float | None) -> str:
    if low is None:
        assert high is not None
        return f"below {units.format_rate(high)}"
    first = units.format_rate(low)
    return f"above {first}" if high is None else f"from {first} to {units.format_rate(high)}"


def give_verdicts(
    spec: RunSpec, scenario: ReducerScenario, state: RunState, *, sensitivity: bool = True
) -> tuple[tuple[Row, ...], tuple[Verdict, ...]]:
    """Return all judged rows, and a verdict for each number of workers, which says what flips it if ``sensitivity``."""
    rows: list[Row] = []
    verdicts = []
    extrapolation, training, max_error = state.extrapolated, scenario.training, spec.max_error
    simulated = {}
    if errors_known(scenario.library.profile):
        simulated["unsure"] = scenario.unsure
    if training is not None:
        batches = f" x {training.accumulate}" if training.accumulate > 1 else ""
        simulated["compute"] = f"{training.profile.setting}{batches}"
        # Exchanges may overlap with the next forward too, if that waits only for its own layers or parameters.
        both = isinstance(training.discipline, ShardedDiscipline) or not training.discipline.waits_for_all
        simulated["behind"] = "compute" if both else "backward"
    for workers, predictions in state.predictions.items():
        judged = judge([each.row for each in predictions], max_error)
        rows += judged
        candidates, executed = candidates_of(judged, max_error), [each.executed for each in predictions]
        origin = None
        if extrapolation is not None and any(row.extrapolated is not None for row in judged):
            origin = "extrapolated from toy gradients" if extrapolation.gradients.toy else "extrapolated"
        context = VerdictContext(
            library=scenario.library.option_string,
            gpu=scenario.gpu.name,
            codec_as=scenario.codec_as,
            max_error=max_error,
            steps=spec.steps,
            scan=state.scan if workers == state.largest else BreakEvenScan(None),
            flips=find_sensitive_constants(candidates, executed, max_error) if sensitivity else (),
            compute_origin=origin,
            faults=tuple(dict.fromkeys(fault.partition(":")[0] for fault in spec.faults)),
            pays_over=(*state.over_batches, *over_workers(state.rows, max_error)) if workers == state.largest else (),
            **simulated,
        )
        verdict = give_verdict(judged, context)
        best = next(each.recorded.reducer for each in predictions if each.recorded.option_string == verdict.best)
        verdicts.append(replace(verdict, best_summary=best.traits.summary))
    return tuple(rows), tuple(verdicts)
