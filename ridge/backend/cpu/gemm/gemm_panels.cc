#include "ridge/backend/cpu/gemm/gemm_panels.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "ridge/backend/cpu/strided_copy.h"
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

// The same from where the elements lie, in one copy.
class PanelCopies {
 public:
  PanelCopies(const LyingElements& from, const GemmShape& shape, const GemmPanels& to)
      : element_(static_cast<int64_t>(size_of(from.lying.dtype))),
        panel_bytes_(shape.k * to.columns * element_),
        whole_(shape.n / to.columns),
        rest_(shape.n % to.columns) {
    const std::vector<CopyAxis> axes = operand_axes(from, shape, to);
    const CopyAxis column = axes.back();
    std::vector<CopyAxis> panels{{whole_, to.columns * column.from, panel_bytes_}};
    panels.insert(panels.end(), axes.begin(), axes.end());
    if (whole_ > 0) panels_.emplace(panels, static_cast<size_t>(element_));
    last_from_ = whole_ * to.columns * column.from;
    std::vector<CopyAxis> last = axes;
    last.back().size = rest_;
    if (rest_ > 0) last_.emplace(last, static_cast<size_t>(element_));
  }

  void run(const void* from, void* to) const {
    if (panels_) panels_->run(from, to);
    if (!last_) return;
    char* const last = static_cast<char*>(to) + whole_ * panel_bytes_;
    std::memset(last, 0, static_cast<size_t>(panel_bytes_));
    last_->run(static_cast<const char*>(from) + last_from_, last);
  }

 private:
  // The axes of the depth, then that of the columns of a panel.
  std::vector<CopyAxis> operand_axes(const LyingElements& from,
                                     const GemmShape& shape,
                                     const GemmPanels& to) const {
    const std::vector<int64_t> strides = byte_strides(from.lying);
    std::vector<CopyAxis> axes;
    for (size_t i = 0; i < strides.size(); ++i) {
      const size_t axis = from.perm.empty() ? i : static_cast<size_t>(from.perm[i]);
      axes.push_back({from.lying.shape[axis], strides[axis], 0});
    }
    const auto columns = axes.end() - (shape.transpose_b ? 2 : 1);
    std::rotate(columns, columns + 1, axes.end());
    axes.back().size = to.columns;
    int64_t step = element_;
    for (size_t i = axes.size(); i-- > 0; step *= axes[i].size) axes[i].to = step;
    return axes;
  }

  int64_t element_, panel_bytes_;
  int64_t whole_, rest_;  // whole panels, and columns that are left for the last one
  int64_t last_from_ = 0;
  std::optional<StridedCopy> panels_, last_;
};

// Null where elements are rounded on the way.
std::unique_ptr<NodeKernel> make_packing(const LyingElements& from,
                                         const GemmShape& shape,
                                         const GemmPanels& to) {
  if (shape.products != GemmProducts::kOwn) return nullptr;
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
