"""Published systems that are others by another name, or with other options."""

from __future__ import annotations

from dataclasses import dataclass

from s2sim.reducers.rank import Certainty


@dataclass(frozen=True, slots=True)
class Preset:
    """A published system as an option string of `s2sim.reducers.registry.make_reducer`.

    Its name may stand wherever a reducer's may, and options after it win over those that it sets:
    ``mem-sgd:density=0.1``. Results keep the name that was asked for; all else that they say is of what it stands for.
    """

    option_string: str  # What it stands for; the name of a reducer and options of it and of wrappers
    summary: str  # What makes it what it is
    source: str  # Who published it
    certainty: Certainty = "recalled"


PRESETS: dict[str, Preset] = {
    "bf16": Preset(
        "dense:dtype=bf16",
        "one all-reduce of the whole gradient in bfloat16",
        "Kalamkar et al., A Study of BFLOAT16 for Deep Learning Training, 2019; PyTorch's bf16_compress_hook",
    ),
    "mem-sgd": Preset(
        "topk:ef=true",
        "each rank's k largest elements, and a memory of all others",
        "Stich, Cordonnier and Jaggi, Sparsified SGD with Memory, NeurIPS 2018; github.com/epfml/sparsifiedSGD",
        "code read",
    ),
    "dgc": Preset(
        "dgc-select:momentum=0.9",
        "a thousandth of the elements, residuals with momentum, masked where sent; warmup=5 for its warm-up",
        "Lin, Han, Mao, Wang and Dally, Deep Gradient Compression, ICLR 2018",
        "code read",
    ),
    "ef21": Preset(
        "topk:ef=ef21",
        "each rank's k largest elements of how far its gradient has moved from what all know of it",
        "Richtárik, Sokolov and Fatkhullin, EF21, NeurIPS 2021",
        "summary read",
    ),
    "gmc": Preset(
        "topk:gmc=0.9",
        "each rank's k largest elements, and a memory that follows the momentum of the model, which all share",
        "Shi et al., Global Momentum Compression, arXiv:1905.12948",
    ),
    "local-sgd": Preset(
        "dense:h=10",
        "ten steps of each rank by itself, then the mean of the models",
        "Stich, Local SGD Converges Fast and Communicates Little, ICLR 2019",
    ),
    "post-local-sgd": Preset(
        "dense:h=16,after=1000",
        "every step exchanged until the learning rate first falls, here at step 1000, then one in 16",
        "Lin, Stich, Patel and Jaggi, Don't Use Large Mini-Batches, Use Local SGD, ICLR 2020",
    ),
    "arc-topk": Preset(
        "sketched-sgd:candidates=1",
        "a sketch that all-reduces says which elements all ranks send, which then all-reduce without an index",
        "ARC-Top-K, arXiv:2510.26709, by its abstract; its own sketch and EF21M around it were not read",
    ),
    "sbc-1": Preset(
        "sbc:density=0.001,ef=true",
        "sparse binary compression of one element in a thousand, every step",
        "Sattler et al., Sparse Binary Compression, IJCNN 2019",
    ),
    "sbc-2": Preset(
        "sbc:ef=true,h=10",
        "sparse binary compression of one element in a hundred, once in ten steps",
        "Sattler et al., Sparse Binary Compression, IJCNN 2019",
    ),
    "sbc-3": Preset(
        "sbc:ef=true,h=100",
        "sparse binary compression of one element in a hundred, once in a hundred steps",
        "Sattler et al., Sparse Binary Compression, IJCNN 2019",
    ),
    "firecaffe": Preset(
        "dense:collective=binary-tree",
        "the whole gradient up a binary tree of workers and down again, as --collective binary-tree times it",
        "Iandola, Moskewicz, Ashraf and Keutzer, FireCaffe, CVPR 2016",
    ),
    "parameter-server": Preset(
        "dense:collective=parameter-server",
        "the whole gradient to one synchronous server, a rank, and back, as --collective parameter-server times it",
        "Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014",
    ),
    "authors-omnireduce": Preset(
        "union",
        "what the S2 authors' code compares with as OmniReduce: bitmaps merged, then the union's values",
        "github.com/GeKeShi/Sparse_Sketch_Reducer (OminiReducer)",
        "code read",
    ),
    "hierarchical-union": Preset(
        "union:hierarchical=true",
        "bitmaps and values of the union between nodes only: ranks of a node sum first",
        "this project; of dense arrays as Horovod's HOROVOD_HIERARCHICAL_ALLREDUCE does it",
        "ours",
    ),
    "hierarchical-owner-reduce": Preset(
        "owner-reduce:hierarchical=true",
        "rows to owners and back between nodes only: ranks of a node sum first",
        "this project; of dense arrays as Horovod's HOROVOD_HIERARCHICAL_ALLREDUCE does it",
        "ours",
    ),
    "hierarchical-s2-exact": Preset(
        "s2-exact:hierarchical=true",
        "a sketch that is peeled between nodes only: ranks of a node sum first",
        "this project; of dense arrays as Horovod's HOROVOD_HIERARCHICAL_ALLREDUCE does it",
        "ours",
    ),
    "hierarchical-topk": Preset(
        "topk:hierarchical=true",
        "the k largest elements of nodes' sums between nodes only: ranks of a node sum first",
        "this project; of dense arrays as Horovod's HOROVOD_HIERARCHICAL_ALLREDUCE does it",
        "ours",
    ),
}
"""By name, in the order in which lists show them."""
