"""Matrix products through cuBLASLt on raw addresses."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

import numpy as np

from snplan.errors import RunError
from snplan.ir import DType
from snplan.runtime.cuda.gpu import Issue, Stream
from snplan.runtime.cuda.packages import cublaslt, dotted
from snplan.runtime.cuda.products import Matrix, Product

# The library's own numbers: cudaDataType_t, and cublasComputeType_t.
_DATA = {DType.FLOAT32: 0, DType.FLOAT64: 1, DType.FLOAT16: 2, DType.BFLOAT16: 14}
_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_32F_TF32 = 68, 70, 77
_EPILOGUE_BIAS = 4
_ALIGNMENT = 256
# Operand types whose bias the library adds to its result itself.
BIAS_TYPES = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})


class CublasLt:
    """A handle, and the algorithm found for every product met so far. All work goes to one stream."""

    def __init__(self, stream: Stream, *, tf32: bool, workspace: int, workspace_bytes: int) -> None:
        """Raises RunError (SNP-R050) where cuBLASLt is missing. The workspace is used by one call after another."""
        self._library = cublaslt()
        self._stream, self._tf32 = stream, tf32
        self._workspace, self._workspace_bytes = workspace, workspace_bytes
        self._handle = self._library.create()
        self._descriptors: list[tuple[Callable[[int], object], int]] = []
        self._plans: dict[tuple[Any, ...], _Plan] = {}

    @property
    def version(self) -> str:
        """cuBLASLt's version."""
        return dotted(int(self._library.get_version()))

    def issue(
        self,
        product: Product,
        dtype: DType,
        addresses: tuple[int, int, int],
        *,
        alpha: float,
        accumulate: bool = False,
        bias: int = 0,
    ) -> Issue:
        """A call that runs a product; `addresses` are those of b, a and y.

        `accumulate` adds to what y holds; `bias` is the address of a vector over y's columns. Raises RunError
        (SNP-R055) where the library has no algorithm.
        """
        plan = self._plan(product, dtype, accumulate=accumulate, bias=bias, alignment=_alignment(product, dtype))
        size = dtype.bits // 8
        first, second, result = (at + size * k for at, k in zip(addresses, product.offsets, strict=True))
        scalar = np.float64 if dtype is DType.FLOAT64 else np.float32
        factors = np.array([alpha, 1.0 if accumulate else 0.0], scalar)
        at_alpha, at_beta = factors.ctypes.data, factors.ctypes.data + factors.itemsize
        library, handle, stream = self._library, self._handle, self._stream.handle
        workspace, workspace_bytes = self._workspace, self._workspace_bytes

        def run() -> None:
            # `factors` is kept alive by `plan_and_factors`: the library reads the scalars at the call.
            plan_, _ = plan_and_factors
            library.matmul(
                handle,
                plan_.descriptor,
                at_alpha,
                first,
                plan_.first,
                second,
                plan_.second,
                at_beta,
                result,
                plan_.result,
                result,
                plan_.result,
                plan_.algorithm,
                workspace,
                workspace_bytes,
                stream,
            )

        plan_and_factors = (plan, factors)
        return run

    def close(self) -> None:
        """Give descriptors and the handle back."""
        while self._descriptors:
            destroy, descriptor = self._descriptors.pop()
            destroy(descriptor)
        self._plans = {}
        self._library.destroy(self._handle)

    def _plan(self, product: Product, dtype: DType, *, accumulate: bool, bias: int, alignment: int) -> _Plan:
        key = product.first, product.second, product.result, product.count, dtype, accumulate, bias, alignment
        if key not in self._plans:
            self._plans[key] = self._new_plan(product, dtype, bias=bias, alignment=alignment)
        return self._plans[key]

    def _new_plan(self, product: Product, dtype: DType, *, bias: int, alignment: int) -> _Plan:
        library = self._library
        if dtype not in _DATA:
            raise RunError("SNP-R055", f"cuBLASLt has no matrix products of {dtype}; cast the operands in the model")
        double = dtype is DType.FLOAT64
        compute = _COMPUTE_64F if double else _COMPUTE_32F_TF32 if self._use_tf32(dtype) else _COMPUTE_32F
        descriptor = library.matmul_desc_create(compute, _DATA[DType.FLOAT64 if double else DType.FLOAT32])
        self._descriptors.append((library.matmul_desc_destroy, descriptor))
        attributes = library.MatmulDescAttribute
        self._describe(descriptor, attributes.TRANSA, int(product.first.transposed))
        self._describe(descriptor, attributes.TRANSB, int(product.second.transposed))
        if bias:
            self._describe(descriptor, attributes.EPILOGUE, _EPILOGUE_BIAS)
            self._describe(descriptor, attributes.BIAS_POINTER, bias)
        layouts = [self._layout(matrix, dtype, product) for matrix in (product.first, product.second, product.result)]
        results = self._algorithm(descriptor, layouts, alignment, product, dtype)
        return _Plan(descriptor, layouts[0], layouts[1], layouts[2], results)

    def _use_tf32(self, dtype: DType) -> bool:
        return self._tf32 and dtype is DType.FLOAT32

    def _describe(self, descriptor: int, attribute: Any, value: int) -> None:
        kind = self._library.get_matmul_desc_attribute_dtype(attribute)
        box = np.array([value], kind)
        self._library.matmul_desc_set_attribute(descriptor, attribute, box.ctypes.data, box.nbytes)

    def _layout(self, matrix: Matrix, dtype: DType, product: Product) -> int:
        library = self._library
        layout: int = library.matrix_layout_create(_DATA[dtype], matrix.rows, matrix.columns, matrix.ld)
        self._descriptors.append((library.matrix_layout_destroy, layout))
        if product.count > 1:
            attributes = library.MatrixLayoutAttribute
            for attribute, value in (
                (attributes.BATCH_COUNT, product.count),
                (attributes.STRIDED_BATCH_OFFSET, matrix.batch),
            ):
                box = np.array([value], library.get_matrix_layout_attribute_dtype(attribute))
                library.matrix_layout_set_attribute(layout, attribute, box.ctypes.data, box.nbytes)
        return layout

    def _algorithm(self, descriptor: int, layouts: list[int], alignment: int, product: Product, dtype: DType) -> Any:
        """The library's first choice within the workspace: the same in every run on the same device and version."""
        library = self._library
        preference = library.matmul_preference_create()
        wanted = library.MatmulPreferenceAttribute
        try:
            settings = {wanted.MAX_WORKSPACE_BYTES: self._workspace_bytes}
            for letter in "ABCD":
                settings[getattr(wanted, f"MIN_ALIGNMENT_{letter}_BYTES")] = alignment
            for attribute, value in settings.items():
                box = np.array([value], library.get_matmul_preference_attribute_dtype(attribute))
                library.matmul_preference_set_attribute(preference, attribute, box.ctypes.data, box.nbytes)
            results = library.MatmulHeuristicResult(1)
            found = np.zeros(1, np.int32)
            first, second, result = layouts
            library.matmul_algo_get_heuristic(
                self._handle, descriptor, first, second, result, result, preference, 1, results.ptr, found.ctypes.data
            )
        except library.cuBLASLtError as error:
            raise _unsupported(product, dtype, str(error)) from error
        finally:
            library.matmul_preference_destroy(preference)
        if not found[0]:
            raise _unsupported(product, dtype, "no algorithm was found")
        return results


class _Plan:
    """Descriptors of one product; `algorithm` is the address of the chosen algorithm, which leads its result."""

    def __init__(self, descriptor: int, first: int, second: int, result: int, results: Any) -> None:
        self.descriptor, self.first, self.second, self.result = descriptor, first, second, result
        self._results = results
        self.algorithm = int(results.ptr)


def _alignment(product: Product, dtype: DType) -> int:
    """Bytes to which all three addresses are aligned: buffers are, offsets into them may be less."""
    size = dtype.bits // 8
    return gcd(_ALIGNMENT, *(offset * size for offset in product.offsets))


def _unsupported(product: Product, dtype: DType, why: str) -> RunError:
    return RunError(
        "SNP-R055",
        f"cuBLASLt cannot multiply {dtype} matrices of {product.first.rows} x {product.first.columns} and "
        f"{product.second.rows} x {product.second.columns} ({product.count} of them): {why}",
    )
