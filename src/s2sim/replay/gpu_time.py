"""What work costs: bytes or operations of the GPU, kernel launches, copies to and from the host, and its CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.collectives.libraries.launches import Local
    from s2sim.reducers.scripts.script import Work
    from s2sim.topology.files.hardware import Gpu
    from s2sim.topology.node_spec import LinkSpec


def work_ps(work: Work, gpu: Gpu, pcie: LinkSpec | None = None) -> int:
    """Return the time of one piece of work in integer picoseconds.

    Bytes that codecs stream and scatter cross the memory at the share of its bandwidth that kernels reach, and
    operations pass at the share of their peak; a kernel does both at once and takes the longer time (S. Williams et
    al., "Roofline", CACM 2009). A table that is converted between dense and coordinate form costs as many passes at
    full bandwidth as were measured. Copies to and from the host, and what its CPU does, come one after the other;
    without the rate of PCIe copies take no time.
    """
    computed = max(work.bytes_moved / gpu.stream_Bps, gpu.flops_s(work.flops))
    converted = (
        work.dense_encode_bytes * gpu.dense_encode_passes + work.dense_decode_bytes * gpu.dense_decode_passes
    ) / gpu.memory_bandwidth_Bps
    copied = 0.0 if pcie is None else work.copied_bytes / pcie.rate_Bps
    return (
        round((computed + converted + copied) * PS_PER_S)
        + work.launches * gpu.kernel_launch_ps
        + gpu.host_ps(work.host_steps)
    )


def local_ps(local: Local, gpu: Gpu, pcie: LinkSpec | None) -> int:
    """Return the time of what a library does between launches, in integer picoseconds.

    Without the rate of PCIe copies to and from the host take no time, but for the host's wait for them.
    """
    copied_s = 0.0 if pcie is None else (local.to_host_bytes + local.to_gpu_bytes) / pcie.rate_Bps
    return (
        round((local.gpu_bytes / gpu.stream_Bps + copied_s) * PS_PER_S)
        + local.kernels * gpu.kernel_launch_ps
        + local.host_syncs * gpu.host_sync_ps
    )
