// The families of reference kernels; each adds its rows to the backend's table.
#pragma once

#include "ridge/backend/host.h"

namespace ridge::ref {

void add_source_kernels(KernelTable& table);
void add_elementwise_kernels(KernelTable& table);
void add_activation_kernels(KernelTable& table);
void add_shape_kernels(KernelTable& table);
void add_reduce_kernels(KernelTable& table);
void add_matmul_kernels(KernelTable& table);
void add_matmul_i8_kernels(KernelTable& table);
void add_conv_i8_kernels(KernelTable& table);
void add_conv_kernels(KernelTable& table);
void add_pool_kernels(KernelTable& table);
void add_softmax_kernels(KernelTable& table);
void add_norm_kernels(KernelTable& table);
void add_batch_norm_kernels(KernelTable& table);
void add_gather_kernels(KernelTable& table);
void add_attention_kernels(KernelTable& table);
void add_random_kernels(KernelTable& table);

}  // namespace ridge::ref
