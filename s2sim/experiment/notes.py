"""The notes that a reader of a run's numbers needs."""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from s2sim.collectives.schedules.demand import nccl_tests_bytes
from s2sim.collectives.timing.library_profile import NO_OVERHEADS, LibraryProfile
from s2sim.errors import warn
from s2sim.experiment.codec_costs import KERNELS, codec_costs
from s2sim.experiment.execute import ExecutedRecording
from s2sim.experiment.prediction import choice_note
from s2sim.experiment.progress import INTERRUPTED_NOTE
from s2sim.experiment.record import RecordedReducer, format_names
from s2sim.experiment.run_extrapolation import RunExtrapolation
from s2sim.experiment.scenario import cluster as clusters
from s2sim.experiment.scenario.reducers import ReducerScenario
from s2sim.experiment.scenario.training import TrainingIteration
from s2sim.experiment.spec import BASELINES, RunSpec
from s2sim.gradients.synthetic import AnyTrace
from s2sim.libraries.library import TIMING, TIMING_OPTIONS, Library
from s2sim.libraries.lowering import IDEAL
from s2sim.profiles.read import RecordedJob
from s2sim.reducers.script import AwaitGradient
from s2sim.simulation.bucketing.sharded import ShardedDiscipline
from s2sim.simulation.faults.fault import Effect, permanent_effects
from s2sim.simulation.plan import make_plan
from s2sim.tables import group_by
from s2sim.topology.shape import ClusterShape
from s2sim.units import PS_PER_S, format_bytes, format_number_of, format_seconds


def fault_notes(
    scenario: ReducerScenario, records: Sequence[RecordedReducer], executed: Sequence[ExecutedRecording]
) -> tuple[str, ...]:
    """Return a note per fault with its effect on each reducer; warn of faults without any effect."""
    found: dict[str, list[tuple[str, Effect]]] = {fault.text: [] for fault in scenario.faults}
    for item, each in zip(records, executed, strict=True):
        begun = each.replay.effects if each.iterations is None else each.iterations.effects
        healthy, cluster = scenario.healthy(each.recording.workers), each.timer.cluster
        sent = chain.from_iterable(
            clusters.healthy_and_damaged_routes(launch.timed.schedule, healthy, cluster)
            for launch in each.replay.launches
        )
        for effect in (*permanent_effects(scenario.faults, healthy, sent), *begun):
            found[effect.fault].append((item.option_string, effect))
    for effects in found.values():
        clusters.warn_of_idle_faults([effect for _, effect in effects[:1] if all(each.nothing for _, each in effects)])
    return tuple(
        f"{fault}: {'; '.join(f'{reducer}: {effect.description}' for reducer, effect in effects)}"
        for fault, effects in found.items()
    )


def compute_notes(spec: RunSpec, scenario: ReducerScenario, recorded: Sequence[RecordedReducer]) -> list[str]:
    """Return the notes on compute and what overlaps with it."""
    if scenario.training is not None:
        notes = _iteration_notes(scenario, scenario.training, recorded)
    elif spec.compute is None:
        notes = ["communication phase only: s2sim run --profile resnet-50 or --compute 120ms compares whole iterations"]
    else:
        notes = [f"iteration = {spec.compute} of compute + communication phase, without overlap"]
    early = [item for item in recorded if AwaitGradient() in item.recording.scripts[0]]
    if early:
        known = spec.compute or scenario.training
        hidden = "as far as it is long enough" if known else "which is taken to be long enough without --compute"
        notes.append(
            f"{format_names(early)}: the batch alone tells the rows, as for embeddings; merging them runs beside "
            f"forward and backward, {hidden}"
        )
    return notes


def codec_notes(scenario: ReducerScenario, recorded: Sequence[RecordedReducer]) -> list[str]:
    """Return a note on what codecs cost, where that is not their kernels alone."""
    if scenario.codec_as == "kernels":
        return []
    costs = {item.option_string: codec_costs(item.reducer, scenario.codec_as) for item in recorded}
    each = "; ".join(f"{name} {cost.text}" for name, cost in costs.items() if cost != KERNELS)
    measured = "; measured times count instead where authors left such" if scenario.codec_as == "published" else ""
    return [f"codecs cost, where they work, beside their kernels' memory traffic: {each or 'nothing'}{measured}"]


def _job_notes(job: RecordedJob) -> list[str]:
    notes = [
        f"recorded on {format_number_of(job.ranks, 'rank')} ({job.host}, {job.device}, PyTorch {job.torch})",
        f"an iteration took {format_seconds(job.iteration_s)} there, communication and waiting included",
    ]
    if not job.compute_alone and job.ranks > 1:
        notes.append("forward and backward are as slow as communication made them: alone=True records them alone")
    return notes


def _iteration_notes(
    scenario: ReducerScenario, training: TrainingIteration, recorded: Sequence[RecordedReducer]
) -> list[str]:
    profile = training.profile
    parts = ("forward", "backward", "optimizer")
    times = ", ".join(f"{what} {format_seconds(getattr(profile, f'{what}_ps') / PS_PER_S)}" for what in parts)
    where, batch = f"{profile.gpu} in {profile.precision}", f"{profile.batch} x {profile.sample} a GPU"
    notes = [f"iterations of {profile.model} on {where}, {batch}: {times} ({profile.kind}: {profile.source})"]
    notes += [] if training.job is None else _job_notes(training.job)
    if training.accumulate > 1:
        notes.append(f"{training.accumulate} mini-batches are computed before gradients are exchanged")
    if training.compute_cv:
        notes.append(
            f"ranks' compute times vary by {training.compute_cv:.0%} from iteration to iteration (lognormal): times "
            "are those of the median iteration"
        )
    if training.compute_times_ms:
        notes.append("ranks compute as long as measured times say: times are those of the median iteration")
    codec = "codec kernels between those of compute on one stream"
    if training.streams > 1:
        codec = "codec kernels beside compute on a stream of their own, sharing memory bandwidth"
    kernels = "communication kernels take nothing from compute: how many blocks they have is not known here"
    gpu = scenario.gpu
    if gpu.multiprocessors and type(scenario.library.profile).blocks is not LibraryProfile.blocks:
        kernels = f"communication kernels take their share of {gpu.multiprocessors} multiprocessors and of memory"
        kernels += " from compute"
    notes.append(f"exchange by {training.discipline.text}, {codec}; {kernels}")
    if isinstance(training.discipline, ShardedDiscipline):
        work = training.on_ranks(scenario.timer(recorded[0].recording.workers), scenario.dtype, gpu)
        there = "" if gpu.memory_bytes is None else f" of {format_bytes(gpu.memory_bytes)}"
        notes.append(
            f"a GPU holds {format_bytes(work.state_bytes)}{there} of parameters, gradients and optimizer states, which "
            f"{work.shards} ranks divide, and of whole parameters while they are used; activations come on top"
        )
        whole = [item for item in recorded if not item.shards and work.shards > 1]
        if whole and training.discipline.scatters:
            notes.append(
                f"{format_names(whole)}: every rank ends with the whole mean and keeps its part, as the program has no "
                "form for shards"
            )
    waiting = [item.option_string for item in recorded if item.reducer.traits.scope == "gradient"]
    if waiting and any(len(item.exchange) > 1 for item in recorded):
        notes.append(f"{', '.join(waiting)}: take the whole gradient at once, and wait until all of it is there")
    return notes


def library_notes(library: Library, shape: ClusterShape, recorded: Sequence[RecordedReducer]) -> list[str]:
    """Return the differences from the ideal library, and what of the library is not counted."""
    if library.name == IDEAL.name:
        packed = [item for item in recorded if any(call.op == "or" for call in item.recording.calls)]
        text = "bits are all-reduced with OR, which MPI has and NCCL has not; there, bitmap=byte"
        return [f"{format_names(packed)}: {text}"] if packed else []
    name = library.option_string
    plans = [(item, make_plan(item.recording, library), make_plan(item.recording)) for item in recorded]
    differing = [
        item
        for item, plan, ideal in plans
        if any(own.demands != ours.demands for own, ours in zip(plan.lowered, ideal.lowered, strict=True))
    ]
    notes = []
    if differing:
        notes.append(
            f"{format_names(differing)}: {name} sends something else than is asked; s2sim run --show lowering "
            "tells what"
        )
    if library.through_host:
        copies = (
            f"copies to and from it take no time here, because {shape.name} has no pcie.rate"
            if shape.pcie is None
            else "buffers are copied out and back over each GPU's PCIe"
        )
        adding = ", and what CPUs take to add is not counted" if library.profile == NO_OVERHEADS else ""
        notes.append(f"{name} works in host memory: {copies}; messages take the ways of GPU memory{adding}")
    return notes


def warn_of_idle_library_options(text: str | None, library: Library, recorded: Sequence[RecordedReducer]) -> None:
    """Warn of options given for the library that decided nothing; not of those of a topology (None)."""
    if text is None:
        return
    plans = [make_plan(item.recording, library) for item in recorded]
    used = {option for plan in plans for lowered in plan.lowered for option in lowered.options}
    for option in library.given_options:
        why = "no reducer asks for what it decides"
        if option in TIMING_OPTIONS:
            # What a library adds counts in every collective.
            if option == TIMING or library.profile != NO_OVERHEADS:
                continue
            why = "times are those of the wire alone"
        if option not in used:
            warn(f"--library {text}: {option} changes nothing here: {why}")


def run_notes(spec: RunSpec, scenario: ReducerScenario, recorded: Sequence[RecordedReducer]) -> list[str]:
    """Return the notes for the rows of the largest number of workers."""
    trace, library = scenario.trace, scenario.library
    warm = [item for item in recorded if item.reducer.traits.warm]
    notes = ["of the first step of the trace: residuals are empty, and what later steps know already is exchanged too"]
    if warm:
        source = (
            "the trace's second step"
            if trace.steps > 1 and not spec.scaled
            else "the same gradients, which they fit better than in training"
        )
        notes.append(f"{format_names(warm)}: a later step, whose sizes, units or matrices are those of {source}")
    notes += _period_notes(spec, trace, recorded)
    notes += [
        f"{item.option_string}: as after its first {item.reducer.warmup_steps} steps, which go otherwise"
        + "; no step that is followed is after them" * (1 < spec.steps <= item.reducer.warmup_steps)
        for item in recorded
        if item.reducer.warmup_steps
    ]
    if spec.steps > 1:
        notes.append(
            f"over {spec.steps} steps what is carried over comes from the step before, and what needs error "
            "feedback runs with it; residuals over the L2 norm of the first step's gradients"
        )
        if warm:
            notes.append(f"{format_names(warm)}: a later step already, so that it is not followed over steps")
    if trace.manifest.kind == "synthetic":
        notes.append("the gradients are synthetic: errors and sizes are those of made-up data")
    if scenario.dtype != "fp32":
        notes.append(
            f"training holds gradients in {scenario.dtype}: what is not compressed travels so, rounded from what was "
            "recorded, and no reducer counts as lossy for that; GPU work is counted as for float32"
        )
    notes += codec_notes(scenario, recorded)
    notes += compute_notes(spec, scenario, recorded)
    if spec.max_error is None:
        notes.append(
            "what is worse than zeros never wins: an error of 1 or more, or above 1 on a layer; nor, unless --steps "
            "follows its residuals, one of 0.995 or more; --max-error sets a stricter limit"
        )
    plans = [make_plan(item.recording, library) for item in recorded]
    kinds = sorted({demand.kind for plan in plans for lowered in plan.lowered for demand in lowered.demands})
    if not isinstance(scenario.algorithm, str):
        unable = [kind for kind in kinds if kind not in scenario.algorithm.kinds]
        notes += [f"{spec.collective} does not run {kind}: the fastest that does ran instead" for kind in unable]
    notes += _granularity_note(trace, recorded)
    for item in recorded:
        error, sized = item.errors.compressed.relative_l2, item.reducer.options().get("error") is not None
        measured = f"; found {'no error that is defined' if error is None else f'{error:.3g}'}" if sized else ""
        notes += [f"{item.option_string}: {note}{measured}" for note in item.reducer.notes()]
    notes += [
        f"{item.option_string}: ranks do not end alike; the consensus distance, the RMS of their distances to their "
        f"average over its L2 norm, is {item.consensus:.3g} after the first step or period; errors are the worst's"
        for item in recorded
        if item.consensus
    ]
    notes += library_notes(library, scenario.shape, recorded)
    if len(spec.workers) > 1:
        notes.append(f"break-even is for {recorded[0].recording.workers} workers")
    return notes


def _period_notes(spec: RunSpec, trace: AnyTrace, recorded: Sequence[RecordedReducer]) -> list[str]:
    notes = []
    for period, items in group_by(recorded, lambda item: item.reducer.period).items():
        steps = 1 if spec.scaled else trace.steps
        if period == 1:
            continue
        if steps == 1:
            source = "the same gradients in all of them, as there is but one step"
        elif steps < period:
            source = f"the gradients of {steps} steps in turn, as there are no more"
        else:
            source = f"those of the trace's first {period} steps"
        notes.append(
            f"{format_names(items)}: time and bytes are means over {period} steps, the last of which exchanges "
            f"the sum; {source}; that models drift apart in between shows in no error"
        )
    return notes


def caveats_of(
    scenario: ReducerScenario,
    recorded: Sequence[RecordedReducer],
    executed: Sequence[ExecutedRecording],
    beyond: RunExtrapolation | None,
    *,
    interrupted: bool,
) -> tuple[str, ...]:
    """Return the notes without which the verdict would mislead."""
    why = None if scenario.library.name == IDEAL.name else scenario.library.unmodelled_reason(scenario.shape)
    of_wire = f"{scenario.library.option_string}: times are those of the wire alone, because {why}"
    plans = [make_plan(item.recording, scenario.library) for item in recorded]
    demands = [demand for plan in plans for lowered in plan.lowered for demand in lowered.demands]
    sent = {(demand.kind, nccl_tests_bytes(demand)) for demand in demands if demand.ranks > 1}
    return (
        *([] if beyond is None else [beyond.sentence()]),
        *([] if why is None else [of_wire]),
        *choice_note(executed[0]),
        *_recorded_note(scenario),
        *_groups_note(scenario),
        *_memory_note(scenario, list(zip(recorded, executed, strict=True))),
        *_tables_note(scenario.training),
        *([scenario.training.discipline.caveat] if scenario.training and scenario.training.discipline.caveat else []),
        *_few_ranks_note(scenario, recorded),
        *clusters.extrapolated_constants_notes(scenario.library, scenario, recorded[0].recording.workers, sent),
        *_missing_baselines_note(recorded),
        *_missing_hierarchy_note(scenario, recorded),
        *fault_notes(scenario, recorded, executed),
        *([INTERRUPTED_NOTE] if interrupted else []),
    )


def _recorded_note(scenario: ReducerScenario) -> list[str]:
    """Return what the recorded job says of the model, or how it could."""
    training = scenario.training
    if training is None or training.job is None:
        return []
    if training.recorded is None:
        return ["the recorded job is not predicted on its own network: record it with network=True, which times that"]
    if not (tables := training.job.by_rows):
        return [training.recorded.text]
    sent = f"the job sends gradients of {', '.join(tables)} by rows (sparse=True), and so on its own network"
    return [training.recorded.text, f"{sent}; speed-ups are over dense, which sends all rows: compare gather-rows"]


def _few_ranks_note(scenario: ReducerScenario, recorded: Sequence[RecordedReducer]) -> list[str]:
    """Return that errors are those of a few ranks, where scripts of all ranks follow from shapes."""
    ranks = recorded[0].recording.workers
    of_more = "those of unbiased reducers fall with the square root of the number of ranks"
    notes = []
    for few, items in scenario.by_recorded_ranks(ranks).items():
        names = ", ".join(item.option_string for item in items if not item.reducer.traits.lossless)
        if few < ranks and names:
            which = f"errors of {names} are those of {few} of {ranks} ranks"
            notes.append(f"what ranks send follows from shapes; {which}, and {of_more}")
    return notes


def _memory_note(scenario: ReducerScenario, ran: Sequence[tuple[RecordedReducer, ExecutedRecording]]) -> list[str]:
    """Return that a GPU cannot hold the model, or not with what some reducers keep, if its memory is known."""
    training, there_bytes = scenario.training, scenario.gpu.memory_bytes
    if training is None or there_bytes is None:
        return []
    beyond = [(each.rank_work.state_bytes, item) for item, each in ran if each.rank_work.state_bytes > there_bytes]
    if not beyond:
        return []
    least = format_bytes(min(held_bytes for held_bytes, _ in beyond))
    whom, states = "", "float32 parameters, gradients and optimizer states"
    if len(beyond) < len(ran):
        whom, states = f" with {format_names([item for _, item in beyond])}", f"what these keep, {states}"
    divide = "--groups tp=N,pp=N divides the model"
    if not isinstance(training.discipline, ShardedDiscipline):
        divide = f"--discipline fsdp divides them among ranks, {divide}"
    elif training.accumulate > 1:
        divide += ", and with --accumulate 1 gradients are divided as well"
    there = f"{format_bytes(there_bytes)} of {training.profile.gpu}, with activations on top"
    return [f"this model does not fit{whom}: {states} of {training.profile.model} take {least} of {there}; {divide}"]


def _tables_note(training: TrainingIteration | None) -> list[str]:
    """Return how a model of which tables are the most is trained here, unless that was recorded."""
    if training is None or training.job is not None:
        return []
    tensors = training.profile.tensors
    if 2 * sum(each.size for each in tensors if each.sparse) <= sum(each.size for each in tensors):
        return []
    how = "dense sends gradients of whole tables, which every rank has, as PyTorch does with sparse=False"
    return [f"{how}; DLRM and TorchRec divide tables among ranks, with all-to-alls of embeddings: not simulated"]


def _groups_note(scenario: ReducerScenario) -> list[str]:
    if scenario.groups is None or scenario.training is not None:
        return [] if scenario.training is None else list(scenario.training.notes)
    each = (
        f"all {scenario.groups.count} data-parallel groups exchange at once, a rank a gradient as large as the trace's"
    )
    return [f"{each}; without --profile nothing is known of what tensor- and pipeline-parallel ranks send each other"]


def _granularity_note(trace: AnyTrace, recorded: Sequence[RecordedReducer]) -> list[str]:
    names = [layer.name for layer in trace.manifest.layers if layer.sparse]
    stated = [item for item in recorded if item.reducer.traits.granularity]
    by_text = group_by(stated, lambda item: item.reducer.traits.granularity)
    if not names or not by_text:
        return []
    parts = "; ".join(f"{text} ({format_names(items)})" for text, items in by_text.items())
    return [f"row-sparse layers ({', '.join(names)}) are sent by {parts}; dense ones, with layers=all, by element"]


def _missing_hierarchy_note(scenario: ReducerScenario, recorded: Sequence[RecordedReducer]) -> list[str]:
    """Return that nothing sums inside nodes first, where nodes have several ranks and tables are compressed by row."""
    ranks = np.bincount(scenario.cluster(recorded[0].recording.workers).node_of_rank)
    reducers = [item.reducer for item in recorded]
    levels = any(each.traits.name == "node-union" or each.options().get("hierarchical") for each in reducers)
    by_row = any(each.traits.granularity and scenario.tensor_sizes(each)[1] for each in reducers)
    if not by_row or levels or ranks.max() == 1 or np.count_nonzero(ranks) == 1:
        return []
    return ["nothing compared here sums inside nodes first: --reducer node-union does"]


def _missing_baselines_note(recorded: Sequence[RecordedReducer]) -> list[str]:
    names = {item.reducer.traits.name for item in recorded}
    missing = [name for name in BASELINES if name not in names]
    if not missing or not names & {"s2", "s2-exact"}:
        return []
    asked = " ".join(f"--reducer {name}" for name in missing)
    return [f"S2 is compared without all that is exact and simpler: {asked} makes it fair"]
