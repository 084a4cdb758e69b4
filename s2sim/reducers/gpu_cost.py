"""Costs of GPU work in bytes of memory traffic and kernels, of selections and codes: ``rank.work(cost.select(...))``.

Costs of tables and sketches are in `s2sim.reducers.shared`.
"""

from dataclasses import replace

from s2sim.reducers.script import Phase, Work

VALUE_BYTES = 4  # A float32 value
INDEX_BYTES = 4  # A uint32 element index
ROW_ID_BYTES = 8  # An int64 row number, as frameworks keep the coordinates of sparse tensors
_PAIR_BYTES = INDEX_BYTES + VALUE_BYTES

GATHER_BYTES = 32
"""What reading one value at a random address moves: memory is read in sectors of 32 bytes (NVIDIA CUDA C++ Best
Practices Guide, "Coalesced Access to Global Memory"). Pessimistic where the array fits in the cache."""

SCATTER_BYTES = 64
"""What adding to one value at a random address moves: its sector is read and written back."""

SELECT_LAUNCHES = 2
"""Kernels of one stream compaction: set up, then a single pass (CUB ``DeviceSelect``; D. Merrill, M. Garland,
"Single-pass parallel prefix scan with decoupled look-back", NVIDIA NVR-2016-002)."""

# A radix select reads the 32-bit magnitudes once for each of its four 8-bit digits, building a histogram
# (T. Alabi et al., "Fast k-selection algorithms for graphics processing units", ACM JEA 2012).
_HISTOGRAM_PASSES = 4
# Steps of a Golomb code: its run of zeros, which one instruction counts, and its low bits.
_GOLOMB_STEPS = 2


def cast(values: int, phase: Phase) -> Work:
    """Return the cost of one pass over float32 values that writes them in half precision, or back."""
    return Work(phase, values * (VALUE_BYTES + 2))


def add(values: int) -> Work:
    """Return the cost of adding or subtracting arrays: two operands are read, one result is written."""
    return Work("encode", 3 * VALUE_BYTES * values)


def compact(size_bytes: int, found: int) -> Work:
    """Return the cost of finding the values of a dense array that are not zero: their places and themselves."""
    return Work("encode", size_bytes + found * (ROW_ID_BYTES + VALUE_BYTES), launches=SELECT_LAUNCHES)


def select(values: int, k: int) -> Work:
    """Return the cost of the k largest magnitudes: the histograms, then one more pass that writes out the pairs."""
    moved = (_HISTOGRAM_PASSES + 1) * values * VALUE_BYTES + k * _PAIR_BYTES
    return Work("encode", moved, launches=_HISTOGRAM_PASSES + SELECT_LAUNCHES)


def add_pairs(result_bytes: int, pairs: int) -> Work:
    """Return the cost of clearing a result, reading pairs of index and value, and adding each where it belongs."""
    return Work("decode", result_bytes + pairs * (_PAIR_BYTES + SCATTER_BYTES), launches=2)


def keep_pairs(result_bytes: int, pairs: int) -> Work:
    """Return the cost of clearing a result and copying the values at some indices into it."""
    return Work("encode", result_bytes + pairs * (INDEX_BYTES + GATHER_BYTES), launches=2)


def write_codes(values: int, code_bytes: int) -> Work:
    """Return the cost of one pass over float32 values that writes their codes."""
    return Work("encode", VALUE_BYTES * values + code_bytes)


def encode_values(values: int, code_bytes: int) -> Work:
    """Return the cost of a pass that finds a scale of float32 values and one that writes their codes."""
    return Work("encode", 2 * VALUE_BYTES * values + code_bytes, launches=2)


def add_codes(values: int, messages: int, code_bytes: int) -> Work:
    """Return the cost of adding what messages of ``values`` values each stand for, one kernel a message."""
    return Work("decode", code_bytes + messages * 2 * VALUE_BYTES * values, launches=max(messages, 1))


def permute(size_bytes: int, arrays: int) -> Work:
    """Return the cost of writing the rows of some arrays in another order: each is read and written."""
    return Work("decode", 2 * size_bytes, launches=arrays)


def encode_positions_cost(values: int, kept: int, *, selections: int = 1) -> Work:
    """Return the cost of selecting on the GPU, copying the pairs to the host, and coding their positions there."""
    work = select(values, kept)
    return replace(
        work,
        bytes_moved=selections * work.bytes_moved,
        launches=selections * work.launches,
        host_steps=_GOLOMB_STEPS * kept,
        copied_bytes=kept * _PAIR_BYTES,
    )


def decode_positions_cost(values: int, pairs: int) -> Work:
    """Return the cost of reading positions on the host, and adding each pair where it belongs on the GPU."""
    work = add_pairs(VALUE_BYTES * values, pairs)
    return replace(work, host_steps=_GOLOMB_STEPS * pairs, copied_bytes=pairs * _PAIR_BYTES)


def encode_levels_cost(values: int, code_bytes: int) -> Work:
    """Return the cost of rounding to levels of a byte on the GPU, copying all to the host, and coding what is not 0.

    Elias codes are made of groups of a bit or few, so that each bit is a step.
    """
    return replace(encode_values(values, values), host_steps=values + 8 * code_bytes, copied_bytes=values)


def decode_levels_cost(values: int, messages: int, code_bytes: int) -> Work:
    """Return the cost of reading codes on the host, and adding up levels of a byte on the GPU."""
    levels = messages * values
    return replace(add_codes(values, messages, levels), host_steps=8 * code_bytes, copied_bytes=levels)


def draw_cost(draws: int, segments: int, phase: Phase) -> Work:
    """Return the cost of drawing indices: each is written once, by a kernel a segment; generators stay in registers."""
    return Work(phase, draws * INDEX_BYTES, launches=segments)


def copy_out_cost(values: int, *, scattered: bool) -> Work:
    """Return the cost of copying values into a message, from random addresses, whose indices are read, or from runs."""
    read = INDEX_BYTES + GATHER_BYTES if scattered else VALUE_BYTES
    return Work("encode", values * (read + VALUE_BYTES))


def scatter_cost(result_bytes: int, values: int, *, scattered: bool) -> Work:
    """Return the cost of clearing a result and adding values to it, at random addresses or in runs."""
    written = INDEX_BYTES + SCATTER_BYTES if scattered else 2 * VALUE_BYTES
    return Work("decode", result_bytes + values * (VALUE_BYTES + written), launches=2)


def merge_pairs_cost(pairs: int, merged: int, lists: int) -> Work:
    """Return the cost of merging sorted lists of pairs two by two, and of adding up those of one index.

    A pass reads and writes all pairs, the sum reads them once more (CUB ``DeviceMerge``, ``DeviceReduce``).
    """
    passes = max(lists - 1, 0).bit_length()
    return Work("encode", ((2 * passes + 1) * pairs + merged) * _PAIR_BYTES, launches=(passes + 1) * SELECT_LAUNCHES)


def multiply_cost(rows: int, inner: int, columns: int, phase: Phase = "encode") -> Work:
    """Return the cost of a product of dense matrices, of ``rows x inner`` and ``inner x columns`` values.

    Each matrix crosses the memory once, as blocked kernels have it where one of them is narrow.
    """
    values = rows * inner + inner * columns + rows * columns
    return Work(phase, values * VALUE_BYTES, flops=2 * rows * inner * columns)


def orthogonalise_cost(rows: int, columns: int) -> Work:
    """Return the cost of making the columns of a narrow matrix orthonormal by Gram-Schmidt, one after the other.

    Kernels as plain PyTorch has them (``orthogonalize`` in github.com/epfml/powersgd, paper-code/gradient_reducers.py):
    five that square, sum up, take the root, add and divide, and, where columns are left, four that multiply them with
    this one, sum up, multiply again and subtract. A launch for each of them is pessimistic for large ranks, where later
    code has a library's QR factorisation, and where matrices of one shape are done at once.
    """
    pairs = columns * (columns - 1) // 2
    # A column is read and written to be squared, read to be summed, read and written to be divided, and read twice for
    # those that are left; of these each goes through memory seven times.
    moved = rows * VALUE_BYTES * (5 * columns + 2 * max(0, columns - 1) + 7 * pairs)
    return Work("encode", moved, launches=max(0, 9 * columns - 4), flops=rows * (3 * columns + 4 * pairs))
