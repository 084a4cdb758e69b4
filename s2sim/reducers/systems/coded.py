"""Any codec as a reducer: each layer is encoded by itself, and payloads of all ranks combine as the codec says."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from s2sim.codecs.payload import Codec, make_codec
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, average
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, wait_all
from s2sim.reducers.reduction import refuse_overflow
from s2sim.reducers.shared.gathered import from_layer_vectors, layer_vectors


@cache
def _codec(text: str) -> Codec:
    codec = make_codec(text.replace(";", ","))
    if len({operation == "gather" for operation in codec.combine.values()}) > 1:
        raise OptionError(
            f"coded: arrays of {codec.name} are both gathered and reduced, and no codec decodes such a mixture: take "
            "one whose arrays are all gathered, or none"
        )
    return codec


@dataclass(slots=True)
class Coded(Reducer):
    """A codec of ``s2sim list codecs`` or of a plug-in, of which this makes a reducer without another line.

    Written ``coded:codec=count-sketch:rows=3;columns=9``: the codec's option string with ``;`` where others have ``,``.
    Arrays that the codec gathers are decoded rank by rank and added up; others are all-reduced and decoded once. The
    GPU is charged as for a simple quantiser: a pass that reads all elements, one that writes the arrays, and one a
    payload that adds what it stands for. How much a codec gathers is taken to depend on data, for which hosts wait.
    """

    compresses_all, needs_parts = True, "a codec"
    codec: str = "fp16"

    def __post_init__(self) -> None:
        Reducer.__post_init__(self)
        _codec(self.codec)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Encode, gather or all-reduce each array of all layers' payloads, and decode."""
        codec = _codec(self.codec)
        payloads = [codec.encode(vector) for vector in layer_vectors(gradient)]
        rank.work(cost.encode_values(gradient.size, sum(payload.body_bytes for payload in payloads)))
        posted = {}
        for name, operation in codec.combine.items():
            arrays = tuple(payload.arrays[name] for payload in payloads)
            if operation == "gather":
                posted[name] = rank.all_gather(arrays, label=name, size_from_data=True)
            else:
                posted[name] = rank.all_reduce(arrays, operation, label=name)
        yield from wait_all(*posted.values())
        arrived = {name: pending.value for name, pending in posted.items()}
        gathers = "gather" in codec.combine.values()
        # By rank, or of all together: the arrays of each layer by name.
        messages = list(zip(*arrived.values(), strict=True)) if gathers else [tuple(arrived.values())]
        body_bytes = sum(array.nbytes for message in messages for arrays in message for array in arrays)
        rank.work(cost.add_codes(gradient.size, len(messages), body_bytes))

        def mean() -> Gradient:
            totals = [np.zeros(payload.elements, np.float32) for payload in payloads]
            with refuse_overflow():
                for message in messages:
                    for payload, total, arrays in zip(payloads, totals, zip(*message, strict=True), strict=True):
                        own = dict(zip(codec.combine, arrays, strict=True))
                        np.add(total, codec.decode(replace(payload, arrays=own)), out=total)
            return average(from_layer_vectors(totals, gradient), rank.size)

        agreed = rank.replicated(mean)
        return Reduced(agreed, sent=lambda: from_layer_vectors(list(map(codec.decode, payloads)), gradient))
