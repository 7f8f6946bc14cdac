#include "ridge/compress/form.h"

#include "ridge/compress/dynamic_form.h"
#include "ridge/compress/static_form.h"

namespace ridge::compress {

int64_t least_opset(QuantizeMethod method) {
  return method == QuantizeMethod::kStatic ? kStaticOpset : kDynamicOpset;
}

EditableModel in_form(const EditableModel& model,
                      const QuantizedForm& form,
                      const std::set<std::string>& chosen) {
  return form.method == QuantizeMethod::kStatic ? in_static_form(model, form, chosen)
                                                : in_dynamic_form(model, form, chosen);
}

SwitchedModel with_switches(const EditableModel& model, const QuantizedForm& form) {
  return form.method == QuantizeMethod::kStatic ? with_static_switches(model, form)
                                                : with_dynamic_switches(model, form);
}

}  // namespace ridge::compress
