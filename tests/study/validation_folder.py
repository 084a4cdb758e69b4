"""Folders of measured curves made for tests."""

import csv

# With an empty cell unless a test says otherwise.
_MORE = (
    "intra_interconnect",
    "outlier_sizes_bytes",
    "p2p",
    "gdr",
    "path",
    "doubt",
    "protocol",
    "nccl_version",
    "min_channels",
)
ROW = {
    "id": "pair",
    "source_url": "https://example.org/pair",
    "gpu_model": "none",
    "gpus_per_node": "1",
    "nodes": "2",
    "ranks": "2",
    "nics_per_node": "1",
    "nic_rate_gbps": "100",
    "collective": "all_reduce",
    "quality": "good",
    "system": "here",
    "launch": "gpu",
    "algorithm": "ring",
    "nvlink_domain_gpus": "0",
    "transport": "ib-verbs",
}


def row(**cells):
    return ROW | dict.fromkeys(_MORE, "") | cells


def write_folder(folder, *curves):
    """Write an index, and the table of each pair of a row and its points (bytes, microseconds)."""
    folder.mkdir(exist_ok=True)
    with (folder / "index.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, row())
        writer.writeheader()
        writer.writerows(cells for cells, _ in curves)
    for cells, points in curves:
        lines = ["size_bytes,time_us", *(f"{size},{time_us}" for size, time_us in points)]
        (folder / f"{cells['id']}.csv").write_text("\n".join(lines) + "\n")
    return folder
