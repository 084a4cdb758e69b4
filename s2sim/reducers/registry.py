"""The reducers there are, by name, and their option strings."""

from __future__ import annotations

from dataclasses import fields
from typing import cast

from s2sim.errors import OptionError, suggest_nearest, unknown_name
from s2sim.options import build, join_option_string, split_option_string
from s2sim.reducers.rank import Reducer
from s2sim.reducers.systems.per_layer import PatternPart
from s2sim.reducers.systems.presets import PRESETS
from s2sim.reducers.wrappers.compose import wrap, wrapper_options, written_options
from s2sim.registry import Registry

FAMILIES = {
    "quantisers": (
        "All elements, in fewer bits",
        "dense fp16 fp8 qsgd terngrad natural ef-signsgd onebit-sgd signsgd-vote int8 dorefa quantized-fw",
    ),
    "elements": (
        "Some of the elements",
        (
            "topk dgc-select pactrain random-k random-block topka2a sparcml omnireduce sbc stc strom wangni gtopk "
            "ok-topk spardl scalecom deepreduce"
        ),
    ),
    "rows": ("Rows of sparse tables", "ag-sparse parallax union node-union owner-reduce gather-rows embrace"),
    "sketches": ("Sketches", "s2 s2-exact sketched-sgd fetchsgd ccss"),
    "low-rank": ("Matrices of low rank", "powersgd acp-sgd"),
    "training": ("By layer, or by another way of training", "per-layer choco fedavg"),
}
"""Title and names of each family of reducers; those that are others with given options are a family of their own."""

OF_PRESETS = "Reducers that are others with given options"


def family_of(name: str) -> str:
    """Return the title of a reducer's family; ``installed`` for those of plug-ins."""
    if name in PRESETS:
        return OF_PRESETS
    return next((title for title, names in FAMILIES.values() if name in names.split()), "installed")


REDUCERS = Registry(
    "reducer",
    "s2sim.reducers",
    {
        "dense": "s2sim.reducers.systems.dense:Dense",
        "fp16": "s2sim.reducers.systems.dense:Fp16",
        "fp8": "s2sim.reducers.systems.dense:Fp8",
        "topk": "s2sim.reducers.systems.topk:TopK",
        "dgc-select": "s2sim.reducers.systems.topk:DgcSelect",
        "pactrain": "s2sim.reducers.systems.random_selection:PacTrain",
        "random-k": "s2sim.reducers.systems.random_selection:RandomK",
        "random-block": "s2sim.reducers.systems.random_selection:RandomBlock",
        "topka2a": "s2sim.reducers.systems.global_topk:TopKA2A",
        "sparcml": "s2sim.reducers.systems.sparcml:SparCML",
        "ag-sparse": "s2sim.reducers.systems.coordinates:AgSparse",
        "parallax": "s2sim.reducers.systems.coordinates:Parallax",
        "omnireduce": "s2sim.reducers.systems.omnireduce:OmniReduce",
        "powersgd": "s2sim.reducers.systems.low_rank:PowerSGD",
        "acp-sgd": "s2sim.reducers.systems.low_rank:AcpSGD",
        "union": "s2sim.reducers.systems.exact_rows:Union",
        "node-union": "s2sim.reducers.systems.node_union:NodeUnion",
        "owner-reduce": "s2sim.reducers.systems.exact_rows:OwnerReduce",
        "gather-rows": "s2sim.reducers.systems.exact_rows:GatherRows",
        "embrace": "s2sim.reducers.systems.embrace:EmbRace",
        "per-layer": "s2sim.reducers.systems.per_layer:PerLayer",
        "s2": "s2sim.reducers.systems.s2:S2",
        "s2-exact": "s2sim.reducers.systems.s2_exact:S2Exact",
        "qsgd": "s2sim.reducers.systems.stochastic_rounding:Qsgd",
        "terngrad": "s2sim.reducers.systems.stochastic_rounding:TernGrad",
        "natural": "s2sim.reducers.systems.stochastic_rounding:Natural",
        "ef-signsgd": "s2sim.reducers.systems.signs:EfSignSgd",
        "onebit-sgd": "s2sim.reducers.systems.signs:OneBitSgd",
        "sbc": "s2sim.reducers.systems.scattered:Sbc",
        "stc": "s2sim.reducers.systems.scattered:Stc",
        "signsgd-vote": "s2sim.reducers.systems.signs:SignSgdVote",
        "int8": "s2sim.reducers.systems.dense:Int8",
        "dorefa": "s2sim.reducers.systems.stochastic_rounding:DoReFa",
        "strom": "s2sim.reducers.systems.scattered:Strom",
        "wangni": "s2sim.reducers.systems.scattered:Wangni",
        "gtopk": "s2sim.reducers.systems.global_topk:GTopK",
        "choco": "s2sim.reducers.systems.model_averaging:Choco",
        "fedavg": "s2sim.reducers.systems.model_averaging:FedAvg",
        "quantized-fw": "s2sim.reducers.systems.stochastic_rounding:QuantizedFrankWolfe",
        "ok-topk": "s2sim.reducers.systems.ok_topk:OkTopK",
        "spardl": "s2sim.reducers.systems.spardl:SparDL",
        "scalecom": "s2sim.reducers.systems.global_topk:ScaleCom",
        "sketched-sgd": "s2sim.reducers.systems.sketches:SketchedSGD",
        "fetchsgd": "s2sim.reducers.systems.sketches:FetchSGD",
        "ccss": "s2sim.reducers.systems.ccss:CCSS",
        "deepreduce": "s2sim.reducers.systems.deepreduce:DeepReduce",
    },
)


def reducer_names() -> list[str]:
    """Return every name that `make_reducer` takes: reducers and presets."""
    return [*REDUCERS.names(), *PRESETS]


def resolved_options(text: str) -> tuple[str, dict[str, str]]:
    """Return the name of a reducer and the options that an option string gives it, those of a preset included.

    >>> resolved_options("mem-sgd:density=0.05")
    ('topk', {'ef': 'true', 'density': '0.05'})
    """
    name, options = split_option_string(text)
    if name in PRESETS:
        own, preset = split_option_string(PRESETS[name].option_string)
        return own, preset | options
    if name not in REDUCERS.names():
        raise unknown_name("reducer", name, reducer_names())
    return name, options


def make_reducer(text: str) -> Reducer:
    """Return the reducer of an option string, or of a preset's name with options that win over its own.

    Options of wrappers stand among its own, see `s2sim.reducers.wrappers.compose`: ``ef=true`` adds error feedback to
    a lossy one, ``warm=true`` makes it a later step of one that carries sizes over.

    >>> make_reducer("topk:density=0.05")
    TopK(density=0.05, granularity='global')
    >>> make_reducer("topk:density=0.05,ef=true")
    ErrorFeedback(inner=TopK(density=0.05, granularity='global'), ef=True)
    """
    name, options = resolved_options(text)
    cls = REDUCERS.get(name)
    added = wrapper_options(cls)
    own = {key: text for key, text in options.items() if key not in added}
    reducer: Reducer
    if cls.takes_reducers:
        # Between the options of a reducer that stands among those of another one there is ``;``.
        parts = [(pattern, make_reducer(text.replace(";", ","))) for pattern, text in own.items()]
        reducer = cls(tuple(PatternPart(key, option_string(part).replace(",", ";"), part) for key, part in parts))
    else:
        known = {field.name for field in fields(cls) if field.init} | added
        for key in own:
            if key not in known:
                raise OptionError(f"{name} has no option {key!r}{suggest_nearest(key, known)}")
        reducer = cast("Reducer", build(cls, own, name))
    return wrap(reducer, {key: text for key, text in options.items() if key in added})


def option_string(reducer: Reducer) -> str:
    """Return the option string of a reducer, defaults left out; the inverse of `make_reducer`.

    >>> option_string(make_reducer("s2:cells=2,rows=3"))
    's2:rows=3,cells=2'
    """
    return join_option_string(reducer.traits.name, written_options(reducer))
