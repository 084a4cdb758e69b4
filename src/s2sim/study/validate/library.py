"""The library that runs a curve's collective, as its row says it was started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.collectives.libraries.constants_file import load_constants
from s2sim.collectives.libraries.host_software import HostSoftware
from s2sim.collectives.libraries.software import Software
from s2sim.collectives.libraries.version import read_version
from s2sim.errors import S2SimError, nearest

if TYPE_CHECKING:
    from s2sim.collectives.libraries.profile import Profile
    from s2sim.study.validate.curve import Machine
    from s2sim.topology.files.links import LinkCatalogue

_NO_GPU = "none"
_LIBRARY, _OF_AMD, _ON_HOSTS, _GLOO = "nccl", "rccl", "mpi", "gloo"
# How generations of AMD's GPUs are called.
_AMD = "gfx"


def library_of(machine: Machine, catalogue: LinkCatalogue) -> Profile:
    """Return what runs collectives on a machine: NCCL, RCCL between AMD's GPUs, MPI or Gloo between hosts."""
    gpu = catalogue.find_gpu(machine.gpu_model)
    if machine.gpu_model.lower().startswith(_NO_GPU):
        return HostSoftware(_GLOO if _GLOO in machine.nccl_version.lower() else _ON_HOSTS)
    library = _OF_AMD if gpu is not None and (gpu.nvlink or "").startswith(_AMD) else _LIBRARY
    known = [protocol.name for protocol in load_constants(library).protocols]
    if machine.protocol and machine.protocol not in known:
        raise S2SimError(f"protocol {machine.protocol!r}{nearest(machine.protocol, known)}")
    return Software(
        library,
        one_process=machine.launch == "node",
        only=machine.protocol,
        version=read_version(machine.nccl_version),
        min_channels=machine.min_channels or 1,
    )
