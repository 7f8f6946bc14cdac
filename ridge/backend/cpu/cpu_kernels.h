// The families of CPU kernels; each adds its rows to the backend's table.
#pragma once

#include "ridge/backend/host.h"

namespace ridge::cpu {

void add_source_kernels(KernelTable& table);
void add_elementwise_kernels(KernelTable& table);
void add_random_kernels(KernelTable& table);
void add_reduce_kernels(KernelTable& table);
void add_softmax_kernels(KernelTable& table);
void add_norm_kernels(KernelTable& table);
void add_batch_norm_kernels(KernelTable& table);
void add_shape_kernels(KernelTable& table);
void add_gather_kernels(KernelTable& table);
void add_pool_kernels(KernelTable& table);
void add_matmul_kernels(KernelTable& table);
void add_matmul_i8_kernels(KernelTable& table);
void add_conv_i8_kernels(KernelTable& table);
void add_conv_kernels(KernelTable& table);
void add_attention_kernels(KernelTable& table);
void add_attention_grad_kernels(KernelTable& table);
/// After those of the ops that these are made of: where there is none for a node, it runs op by op.
void add_pointwise_depthwise_kernels(KernelTable& table);
void add_norm_conv_kernels(KernelTable& table, const KernelTable& (*plain)());
void add_conv_norm_grad_kernels(KernelTable& table, const KernelTable& (*plain)());
/// After all others: where a body has an op without a block kernel, the node runs op by op.
void add_fused_kernels(KernelTable& table, const KernelTable& (*plain)());

}  // namespace ridge::cpu
