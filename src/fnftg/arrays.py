"""Type aliases for NumPy arrays. Comments at the point of use give shapes and contents."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

AnyArray: TypeAlias = npt.NDArray[Any]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
Float32Array: TypeAlias = npt.NDArray[np.float32]
Float64Array: TypeAlias = npt.NDArray[np.float64]
Int32Array: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
IntArray: TypeAlias = npt.NDArray[np.integer[Any]]
UInt8Array: TypeAlias = npt.NDArray[np.uint8]
UInt64Array: TypeAlias = npt.NDArray[np.uint64]
