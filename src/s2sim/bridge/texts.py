"""Word-level text: vocabulary, shards, and the origin of texts that are known by their checksum."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.bridge.task import DataOrigin
from s2sim.errors import S2SimError
from s2sim.text_files import check_regular, read_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from s2sim.arrays import Ints


_END_OF_LINE = "<eos>"
_UNKNOWN = "<unk>"
# Words take ten times as much memory.
_MOST_BYTES = 2**28
# SHA-256 of a text to the part of WikiText-2 it is.
_WIKITEXT_2 = {
    "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8": "validation",
    "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0": "test",
}


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """A text as word numbers in reading order, int64 of shape (n,); 0 is the most frequent word."""

    tokens: Ints
    vocabulary_size: int
    origin: DataOrigin


def _origin(paths: Sequence[Path], contents: Sequence[bytes]) -> DataOrigin:
    parts = [_WIKITEXT_2.get(hashlib.sha256(content).hexdigest()) for content in contents]
    known = [part for part in parts if part is not None]
    if len(known) == len(parts):
        return DataOrigin(
            data=f"WikiText-2 (Merity et al., 2016), {' and '.join(known)} part, text from Wikipedia",
            licence="CC BY-SA 3.0",
            source="Merity, Xiong, Bradbury, Socher: Pointer Sentinel Mixture Models, arXiv:1609.07843",
        )
    digests = ", ".join(
        f"{path.name} (SHA-256 {hashlib.sha256(content).hexdigest()[:12]})"
        for path, content in zip(paths, contents, strict=True)
    )
    return DataOrigin(data=f"text of the user: {digests}", licence="not stated", source="files of the user")


def check_texts(paths: Sequence[Path]) -> None:
    """Refuse texts that cannot be read, before anything long is done for them."""
    for path in paths:
        try:
            check_regular(path, _MOST_BYTES)
        except OSError as error:
            raise S2SimError(f"the text {path} cannot be read: {error.strerror}") from error


def read_corpus(paths: Sequence[Path], *, vocabulary: int | None = None) -> Corpus:
    """Read UTF-8 texts one after the other, words split at white space, one end mark a line.

    Of the words the most frequent are kept, ``vocabulary`` with the mark that replaces all others; None keeps all.
    """
    contents = []
    words: list[str] = []
    for path in paths:
        try:
            content = read_bytes(path, _MOST_BYTES)
            lines = content.decode("utf-8").splitlines()
        except OSError as error:
            raise S2SimError(f"the text {path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise S2SimError(f"the text {path} is not UTF-8: {error.reason} at byte {error.start}") from error
        contents.append(content)
        words += [word for line in lines for word in (*line.split(), _END_OF_LINE)]
    counts = Counter(words)
    if vocabulary is not None and len(counts) > vocabulary:
        kept = {word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: vocabulary - 1]}
        words = [word if word in kept else _UNKNOWN for word in words]
        counts = Counter(words)
    # Ties by spelling, so that the numbers do not depend on the order of reading.
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    numbers = {word: number for number, word in enumerate(ranked)}
    tokens = np.fromiter((numbers[word] for word in words), np.int64, len(words))
    return Corpus(tokens, len(ranked), _origin(paths, contents))


def shard_windows(tokens: Ints, *, workers: int, sequences: int, length: int) -> Ints:
    """Split a text into one contiguous shard a rank and each shard into windows for truncated training.

    They are int64 of shape (workers, windows, sequences, length + 1): inputs are all but the last word of a window,
    targets all but the first.
    """
    per_sequence = len(tokens) // (workers * sequences)
    windows = (per_sequence - 1) // length
    if windows < 1:
        raise S2SimError(
            f"the text has {len(tokens)} words; {workers} workers with {sequences} sequences of {length} need at "
            f"least {workers * sequences * (length + 1)}: use a longer text or fewer workers"
        )
    streams = tokens[: workers * sequences * per_sequence].reshape(workers, sequences, per_sequence)
    starts = np.arange(windows) * length
    positions = starts[:, None] + np.arange(length + 1)
    return np.ascontiguousarray(streams[:, :, positions].transpose(0, 2, 1, 3))


def hold_out(tokens: Ints, share: float, *, length: int, most: int) -> tuple[Ints, Ints]:
    """Return a text without its last ``share``, and windows of that, int64 of shape (windows, length + 1).

    They are as those of `shard_windows`, at most ``most``, evenly spread. `S2SimError` if there is not one.
    """
    held = int(len(tokens) * share)
    starts = np.arange((held - 1) // length) * length
    if not len(starts):
        raise S2SimError(
            f"{share:g} of a text of {len(tokens)} words is less than the {length + 1} words of a sequence to evaluate "
            "by: use a longer text, or a larger held_out"
        )
    starts = starts[np.arange(min(most, len(starts))) * len(starts) // min(most, len(starts))]
    windows = tokens[len(tokens) - held :][starts[:, None] + np.arange(length + 1)]
    return tokens[: len(tokens) - held], windows
