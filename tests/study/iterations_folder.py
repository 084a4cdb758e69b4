"""Folders of measured iterations made for tests."""

import csv

from s2sim.files import data_directory

with (data_directory("measured/iterations") / "iterations.csv").open(newline="", encoding="utf-8") as shipped:
    COLUMNS = tuple(next(csv.reader(shipped)))
ROW = dict.fromkeys(COLUMNS, "") | {
    "id": "dense",
    "source": "here",
    "gpu": "V100",
    "nodes": "2",
    "gpus_per_node": "1",
    "workers": "2",
    "nic_rate_gbps": "10",
    "model": "ResNet-50",
    "n_params": "25557032",
    "batch_per_gpu": "64",
    "reducer": "dense",
    "forward_ms": "30",
    "backward_ms": "60",
    "iteration_ms": "200",
    "transport": "tcp",
    "overlap_kind": "none",
}


def iteration(**cells):
    return ROW | cells


def write_iterations(folder, *rows):
    folder.mkdir(exist_ok=True)
    with (folder / "iterations.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return folder
