"""The entries of PyTorch's `op_db` that reach operators which the engine takes (ridge/import/aten/ops)."""

# Those of the operators themselves, and one for each operator that others are taken apart into.
OPERATORS = """
_softmax_backward_data abs acos add addcmul addmm amax amin any arange argmax as_strided as_strided_scatter asin
atan atanh baddbmm bitwise_and bitwise_not bitwise_or bitwise_xor bmm cat ceil clamp clamp_min clone constant_pad_nd
cos cumsum div/floor_rounding div/no_rounding_mode div/trunc_rounding eq erf exp expand floor fmod full gather ge gt
index_put index_select isinf isnan le log log_softmax logical_and logical_not logical_or logical_xor lt
masked.argmax maximum mean minimum mm mul native_dropout_backward native_layer_norm ne neg nn.functional.avg_pool1d
nn.functional.avg_pool2d nn.functional.batch_norm nn.functional.conv1d nn.functional.conv2d
nn.functional.conv_transpose2d nn.functional.cross_entropy nn.functional.embedding nn.functional.gelu
nn.functional.group_norm nn.functional.hardtanh nn.functional.layer_norm nn.functional.leaky_relu
nn.functional.linear nn.functional.max_pool2d nn.functional.multi_margin_loss nn.functional.one_hot
nn.functional.pad/constant nn.functional.relu nn.functional.scaled_dot_product_attention nn.functional.silu permute
pow reciprocal remainder repeat roll round rsqrt scalar_tensor scatter scatter_add select select_scatter sigmoid
sign sin slice_scatter softmax split split_with_sizes sqrt squeeze sub sum take_along_dim tan tanh
torch.ops.aten._safe_softmax.default transpose trunc unbind unsqueeze view where
""".split()

# Those of functions that are taken apart into such operators, in full or in part.
FUNCTIONS = """
H T __getitem__ __radd__ __rand__ __rdiv__ __rmatmul__ __rmod__ __rmul__ __ror__ __rpow__ __rsub__ __rxor__
_chunk_cat _native_batch_norm_legit _segment_reduce/lengths _segment_reduce/offsets _unsafe_masked_index
_unsafe_masked_index_put_accumulate acosh addbmm addcdiv addmm/decomposed addmv addr alias_copy all aminmax angle
as_strided_copy asinh atan2 atleast_1d atleast_2d atleast_3d bfloat16 block_diag bmm/triton_optimized bool
broadcast_tensors broadcast_to byte cartesian_prod cdist char cholesky_inverse cholesky_solve chunk clamp_max
column_stack combinations copysign cosh count_nonzero cross cummax cummin cumprod cumulative_trapezoid deg2rad diag
diag_embed diagflat diagonal_copy diagonal_scatter diff digamma dist dot double dsplit dstack einsum erfc erfinv
exp2 expand_as expand_copy expm1 eye fft.fftshift fft.hfft fft.hfft2 fft.hfftn fft.ifftshift fft.irfft fft.irfft2
fft.irfftn fill flatten float float_power floor_divide fmax fmin frac frexp full_like gradient half heaviside hsplit
hstack hypot i0 index_add index_copy index_fill index_reduce/amax index_reduce/amin index_reduce/mean
index_reduce/prod inner int isclose isfinite isin isneginf isposinf isreal kron kthvalue ldexp lerp lgamma
linalg.cholesky linalg.cholesky_ex linalg.cond linalg.cross linalg.det linalg.eigh linalg.eigvalsh
linalg.householder_product linalg.inv linalg.inv_ex linalg.lu linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve
linalg.matrix_norm linalg.matrix_power linalg.matrix_rank linalg.matrix_rank/hermitian linalg.matrix_sqrth
linalg.multi_dot linalg.norm linalg.norm/subgradients_at_zero linalg.pinv linalg.pinv/hermitian linalg.pinv/singular
linalg.polar linalg.qr linalg.slogdet linalg.solve linalg.solve_ex linalg.solve_triangular linalg.svd linalg.svdvals
linalg.tensorinv linalg.tensorsolve linalg.vander linalg.vecdot linalg.vector_norm linspace linspace/tensor_overload
log10 log1p log2 log_softmax/with_dtype logaddexp logaddexp2 logcumsumexp logdet logit logspace
logspace/tensor_overload logsumexp long lu lu_solve lu_unpack mH mT masked.amax masked.amin masked.argmin
masked.cumprod masked.cumsum masked.log_softmax masked.logaddexp masked.logsumexp masked.mean masked.median
masked.norm masked.normalize masked.prod masked.softmax masked.softmin masked.std masked.sum masked.var masked_fill
masked_scatter matmul matrix_exp max/binary max/reduction_no_dim max/reduction_with_dim
max_pool2d_with_indices_backward median meshgrid/list_of_tensors meshgrid/variadic_tensors min/binary
min/reduction_no_dim min/reduction_with_dim mode movedim msort mv mvlgamma/mvlgamma_p_1 mvlgamma/mvlgamma_p_3
mvlgamma/mvlgamma_p_5 nan_to_num nanmean nanmedian nanquantile nansum narrow narrow_copy native_batch_norm
native_group_norm new_full new_ones new_zeros nextafter nn.functional.adaptive_avg_pool1d
nn.functional.adaptive_avg_pool2d nn.functional.adaptive_avg_pool3d nn.functional.adaptive_max_pool1d
nn.functional.alpha_dropout nn.functional.bilinear nn.functional.binary_cross_entropy
nn.functional.binary_cross_entropy_with_logits nn.functional.celu nn.functional.channel_shuffle nn.functional.conv3d
nn.functional.conv_transpose1d nn.functional.conv_transpose3d nn.functional.cosine_embedding_loss
nn.functional.cosine_similarity nn.functional.dropout2d nn.functional.dropout3d nn.functional.elu
nn.functional.embedding_bag nn.functional.feature_alpha_dropout/with_train nn.functional.glu
nn.functional.hardshrink nn.functional.hardsigmoid nn.functional.hardswish nn.functional.hinge_embedding_loss
nn.functional.huber_loss nn.functional.instance_norm nn.functional.interpolate/area
nn.functional.interpolate/bicubic nn.functional.interpolate/bilinear nn.functional.interpolate/linear
nn.functional.interpolate/nearest nn.functional.interpolate/nearest-exact nn.functional.interpolate/trilinear
nn.functional.kl_div nn.functional.l1_loss nn.functional.linear_cross_entropy
nn.functional.linear_cross_entropy/chunked nn.functional.linear_cross_entropy/chunked_none
nn.functional.local_response_norm nn.functional.logsigmoid nn.functional.margin_ranking_loss
nn.functional.max_pool1d nn.functional.max_unpool1d nn.functional.max_unpool1d/grad nn.functional.max_unpool2d
nn.functional.max_unpool2d/grad nn.functional.max_unpool3d nn.functional.max_unpool3d/grad nn.functional.mish
nn.functional.mse_loss nn.functional.multilabel_margin_loss nn.functional.multilabel_soft_margin_loss
nn.functional.nll_loss nn.functional.normalize nn.functional.pad/circular nn.functional.pad/reflect
nn.functional.pad/replicate nn.functional.pad/replicate_negative nn.functional.pairwise_distance nn.functional.pdist
nn.functional.pixel_shuffle nn.functional.pixel_unshuffle nn.functional.poisson_nll_loss nn.functional.prelu
nn.functional.relu6 nn.functional.rms_norm nn.functional.selu nn.functional.smooth_l1_loss
nn.functional.soft_margin_loss nn.functional.softmin nn.functional.softmin/with_dtype nn.functional.softplus
nn.functional.softshrink nn.functional.softsign nn.functional.tanhshrink nn.functional.threshold
nn.functional.triplet_margin_loss nn.functional.triplet_margin_with_distance_loss nn.functional.unfold
nn.functional.upsample_bilinear nn.functional.upsample_nearest norm norm/fro norm/inf norm/nuc ones ones_like ormqr
outer permute_copy pinverse polygamma/polygamma_n_0 polygamma/polygamma_n_1 polygamma/polygamma_n_2
polygamma/polygamma_n_3 polygamma/polygamma_n_4 prod put quantile rad2deg ravel renorm repeat_interleave reshape
reshape_as resize_ resize_as_ rot90 round/decimals_0 round/decimals_3 round/decimals_neg_3 rsub scatter_reduce/amax
scatter_reduce/amin scatter_reduce/mean scatter_reduce/prod scatter_reduce/sum sgn short signal.windows.bartlett
signal.windows.blackman signal.windows.cosine signal.windows.exponential signal.windows.gaussian
signal.windows.general_cosine signal.windows.general_hamming signal.windows.hamming signal.windows.hann
signal.windows.kaiser signal.windows.nuttall sinc
sinh slice softmax/with_dtype sort special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1
special.entr special.erfcx special.i0e special.i1 special.i1e special.log_ndtr special.modified_bessel_i0
special.modified_bessel_i1 special.modified_bessel_k0 special.modified_bessel_k1 special.ndtr special.ndtri
special.polygamma/special_polygamma_n_0 special.xlog1py split/list_args split_with_sizes_copy square
squeeze/multiple squeeze_copy stack std std/unbiased std_mean std_mean/unbiased stft sum_to_size svd t t_copy take
tensor_split tensordot tile to topk trace transpose_copy trapezoid trapz triangular_solve tril triu true_divide
unbind_copy unflatten unfold_copy unravel_index unsafe_chunk unsafe_split unsqueeze_copy var var/unbiased var_mean
var_mean/unbiased vdot view_as view_copy vsplit vstack xlogy zero_ zeros zeros_like
""".split()

# Entries that PyTorch takes apart into other results than its own, and why: they are held against those.
APART = {
    "linspace": "whole numbers are cut from floats, which its kernel rounds elsewhere",
    "linspace/tensor_overload": "whole numbers are cut from floats, which its kernel rounds elsewhere",
}
