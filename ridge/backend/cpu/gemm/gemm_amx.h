// Matrix products of bf16 by the tiles of AMX, for machines that have_amx().
//
// They have bits of their own (isa/gemm/gemm_amx_kernels.h), which are the same for any number of
// threads: an element of C is added up over blocks of 32 steps of depth, in order. So a row of C
// has the same bits whatever other rows or columns are computed too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ridge/backend/cpu/gemm/gemm.h"
#include "ridge/backend/host.h"
#include "ridge/base/function_ref.h"

namespace ridge::cpu {

/// Bytes of workspace that gemm_amx needs: op(B) in bf16, and op(A) where k is above 8192, up to 16
/// MiB of each, more only where 256 rows or columns need more; 0 for small products. `has_panels`:
/// op(B) was packed beforehand. Besides, a thread packs up to 512 KiB on its stack.
size_t gemm_amx_workspace_bytes(const GemmShape& shape, const GemmBatch& batch, bool has_panels);

/// C = op(A) op(B) for each item of a batch, added to the old C when `accumulate`. In is float,
/// whose elements are rounded to bf16 first, or BF16; Out is float or, for BF16, BF16, to which
/// sums in f32 are rounded once, and which cannot accumulate. `workspace` has
/// gemm_amx_workspace_bytes, at any alignment; `finish` may be null. `shape.products` is not read.
/// InternalError for a shape that breaks the rules, and where there is no AMX.
template <typename In, typename Out>
void gemm_amx(const GemmShape& shape,
              const GemmBatch& batch,
              const In* a,
              const In* b,
              Out* c,
              bool accumulate,
              void* workspace,
              const FinishBlock* finish = nullptr);

/// Writes `rows` rows of op(A) from `row` on, whole, as the panels of isa/gemm/gemm_amx_kernels.h,
/// from any thread.
using GatherTiles = FunctionRef<void(int64_t row, int64_t rows, BF16* panels)>;

/// True where gemm_amx_gathered takes a shape: a depth of up to 8192.
bool can_gather_tiles(const GemmShape& shape);

/// gemm_amx of a single item, for an op(A) that lies nowhere: its rows are gathered where they are
/// multiplied.
void gemm_amx_gathered(const GemmShape& shape,
                       GatherTiles gather,
                       const BF16* b,
                       BF16* c,
                       void* workspace,
                       const FinishBlock* finish = nullptr);

/// gemm_amx of a single item, whose op(B) was packed by amx_operand(). `panels` is 64-byte aligned.
template <typename In, typename Out>
void gemm_amx_packed(const GemmShape& shape,
                     const In* a,
                     const void* panels,
                     Out* c,
                     void* workspace,
                     const FinishBlock* finish = nullptr);

/// The operand `input` of a product of that shape, a constant, as gemm_amx_packed reads it: bf16 of
/// the shape (panels of 16 columns, tiles of 32 steps, pairs of steps, columns, steps of a pair).
PackedOperand amx_operand(size_t input, const GemmShape& shape);

}  // namespace ridge::cpu
