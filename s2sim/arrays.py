"""Names for the arrays that most signatures are made of."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Floats32: TypeAlias = NDArray[np.float32]
Words: TypeAlias = NDArray[np.uint32]
Bits: TypeAlias = NDArray[np.uint8]
Ints16: TypeAlias = NDArray[np.int16]
