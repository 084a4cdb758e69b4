"""GOAL text, read back by its grammar."""

import re

OPERATION = re.compile(r"(l\d+): (?:(send|recv) (\d+)b (?:to|from) (\d+) tag (\d+)|(calc) 0)")
DEPENDENCY = re.compile(r"(l\d+) (requires|irequires) (l\d+)")


def parse(text):
    """Return operations (kind, size, other rank, tag) and dependencies (label, word, label) of each rank."""
    head, *blocks = re.split(r"\nrank (?=\d+ \{\n)", text)
    assert re.fullmatch(r"(//[^\n]*\n)*num_ranks \d+\n", head)
    assert int(head.split()[-1]) == len(blocks)
    operations, dependencies = [], []
    for rank, block in enumerate(blocks):
        first, *lines, last = block.rstrip("\n").split("\n")
        assert (first, last) == (f"{rank} {{", "}")
        own, waits = {}, []
        for line in lines:
            if found := OPERATION.fullmatch(line):
                label, kind, size, other, tag, calc = found.groups()
                assert label not in own
                own[label] = (calc,) if calc else (kind, int(size), int(other), int(tag))
            else:
                label, word, before = DEPENDENCY.fullmatch(line).groups()
                # A label must be known before it is used.
                assert {label, before} <= own.keys()
                waits.append((label, word, before))
        operations.append(own)
        dependencies.append(waits)
    return operations, dependencies
