#include "ridge/import/onnx/op_table.h"

#include <map>

namespace ridge::onnx {

std::vector<OpRow> all_ops() {
  std::vector<OpRow> rows;
  for (const auto& family :
       {arithmetic_ops(), function_ops(),  activation_ops(), logic_ops(),     shape_ops(),
        constant_ops(),   index_ops(),     reduce_ops(),     product_ops(),   conv_ops(),
        quantize_ops(),   qlinear_ops(),   pool_ops(),       norm_ops(),      resize_ops(),
        sampling_ops(),   attention_ops(), loss_ops(),       recurrent_ops(), control_ops()})
    rows.insert(rows.end(), family.begin(), family.end());
  return rows;
}

const OpRow* find_op(std::string_view domain, std::string_view name, int64_t opset) {
  static const std::multimap<std::string_view, OpRow> table = [] {
    std::multimap<std::string_view, OpRow> by_name;
    for (const OpRow& row : all_ops()) by_name.emplace(row.name, row);
    return by_name;
  }();
  const auto [begin, end] = table.equal_range(name);
  for (auto row = begin; row != end; ++row)
    if (row->second.domain == domain && row->second.first <= opset && opset <= row->second.last)
      return &row->second;
  return nullptr;
}

}  // namespace ridge::onnx
