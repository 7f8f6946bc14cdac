#include "ridge/import/aten/op_table.h"

#include <unordered_map>

namespace ridge::aten {

const OpRow* find_op(std::string_view name) {
  static const auto rows = [] {
    std::unordered_map<std::string_view, const OpRow*> all;
    for (const auto family : {arithmetic_ops,
                              function_ops,
                              logic_ops,
                              shape_ops,
                              source_ops,
                              reduce_ops,
                              product_ops,
                              conv_ops,
                              pool_ops,
                              norm_ops,
                              softmax_ops,
                              attention_ops,
                              index_ops,
                              quantize_ops})
      for (const OpRow& row : family()) all.emplace(row.name, &row);
    return all;
  }();
  const auto at = rows.find(name);
  return at == rows.end() ? nullptr : at->second;
}

}  // namespace ridge::aten
