#include "ridge/backend/cpu/gemm/gemm_panels.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "ridge/backend/cpu/strided_copy.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/cpu/scale_rows.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"

namespace ridge::cpu {
namespace {

// By ops: (panels, depth, columns) of op(B), whose columns are padded with zeros.
Value pack_panels(Value b, const GemmShape& shape, const GemmPanels& to) {
  DType rounded = b.dtype();
  if (shape.products == GemmProducts::kRoundedToF16) rounded = DType::kF16;
  if (shape.products == GemmProducts::kRounded) rounded = DType::kBF16;
  const int64_t n = to.panels * to.columns;
  Value x =
      cast(cast(reshape(b, shape.transpose_b ? Shape{shape.n, shape.k} : Shape{shape.k, shape.n}),
                rounded),
           b.dtype());
  if (n > shape.n)
    x = pad(x,
            {0, 0},
            shape.transpose_b ? std::vector{n - shape.n, int64_t{0}}
                              : std::vector{int64_t{0}, n - shape.n});
  if (shape.transpose_b) return transpose(reshape(x, {to.panels, to.columns, shape.k}), {0, 2, 1});
  return transpose(reshape(x, {shape.k, to.panels, to.columns}), {1, 0, 2});
}

// The same from where the elements lie, panel by panel.
class PanelCopies {
 public:
  PanelCopies(const LyingElements& from, const GemmShape& shape, const GemmPanels& to)
      : dtype_(from.lying.dtype),
        element_(static_cast<int64_t>(size_of(dtype_))),
        depth_(shape.k),
        columns_(to.columns),
        whole_(shape.n / columns_),
        scale_(from.scale) {
    std::vector<CopyAxis> axes = operand_axes(from, shape);
    from_step_ = columns_ * axes.back().from;
    if (whole_ > 0) panel_.emplace(axes, static_cast<size_t>(element_));
    axes.back().size = shape.n % columns_;
    if (axes.back().size > 0) last_.emplace(axes, static_cast<size_t>(element_));
    if (!scale_.empty()) scale_.resize(static_cast<size_t>(to.panels * columns_));
  }

  void run(const void* from, void* to) const {
    const auto* const source = static_cast<const char*>(from);
    auto* const target = static_cast<char*>(to);
    parallel_for(whole_ + (last_ ? 1 : 0), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        pack_panel(i, source + i * from_step_, target + i * panel_bytes());
    });
  }

 private:
  int64_t panel_bytes() const { return depth_ * columns_ * element_; }

  void pack_panel(int64_t i, const char* from, char* to) const {
    if (i == whole_) std::memset(to, 0, static_cast<size_t>(panel_bytes()));
    (i == whole_ ? last_ : panel_)->run(from, to);
    if (scale_.empty()) return;
    const std::span<const double> all(scale_);
    scale_rows(dtype_,
               to,
               depth_,
               all.subspan(static_cast<size_t>(i * columns_), static_cast<size_t>(columns_)));
  }

  // The axes of the depth, then that of the columns of a panel.
  std::vector<CopyAxis> operand_axes(const LyingElements& from, const GemmShape& shape) const {
    const std::vector<int64_t> strides = byte_strides(from.lying);
    std::vector<CopyAxis> axes;
    for (size_t i = 0; i < strides.size(); ++i) {
      const size_t axis = from.perm.empty() ? i : static_cast<size_t>(from.perm[i]);
      axes.push_back({from.lying.shape[axis], strides[axis], 0});
    }
    const auto columns = axes.end() - (shape.transpose_b ? 2 : 1);
    std::rotate(columns, columns + 1, axes.end());
    axes.back().size = columns_;
    int64_t step = element_;
    for (size_t i = axes.size(); i-- > 0; step *= axes[i].size) axes[i].to = step;
    return axes;
  }

  DType dtype_;
  int64_t element_, depth_, columns_;
  int64_t whole_;          // panels that are full
  int64_t from_step_ = 0;  // bytes to the elements of the next panel
  std::optional<StridedCopy> panel_, last_;
  std::vector<double> scale_;  // of all columns
};

// Null where elements are rounded on the way, or scaled along the depth.
std::unique_ptr<NodeKernel> make_packing(const LyingElements& from,
                                         const GemmShape& shape,
                                         const GemmPanels& to) {
  if (shape.products != GemmProducts::kOwn || (shape.transpose_b && !from.scale.empty()))
    return nullptr;
  return std::make_unique<HostKernel>(
      [copies = PanelCopies(from, shape, to)](const KernelArgs& args) {
        copies.run(args.inputs[0], args.outputs[0]);
      });
}

}  // namespace

PackedOperand panels_operand(size_t input, const GemmShape& shape, const GemmPanels& panels) {
  constexpr std::string_view kNames[] = {"", ".bf16", ".f16"};
  return {.input = input,
          .layout = fmt::format("panels{}{}{}",
                                panels.columns,
                                shape.transpose_b ? "t" : "",
                                kNames[static_cast<size_t>(shape.products)]),
          .pack = [shape, panels](Value value) { return pack_panels(value, shape, panels); },
          .kernel = [shape, panels](
                        const LyingElements& from) { return make_packing(from, shape, panels); }};
}

}  // namespace ridge::cpu
