#include "ridge/compress/quantize_model.h"

#include <algorithm>

#include "ridge/compress/calibration.h"
#include "ridge/compress/choose.h"
#include "ridge/compress/equalize.h"
#include "ridge/compress/fold_norms.h"
#include "ridge/compress/points.h"
#include "ridge/compress/site_errors.h"
#include "ridge/compress/sites.h"
#include "ridge/compress/static_form.h"

namespace ridge::compress {
namespace {

// A site's own error is measured on so many samples, which is enough for an order; on fewer, but at
// least two, where all sites together would take more floating-point operations.
constexpr size_t kErrorSamples = 8, kLeastErrorSamples = 2;
constexpr double kErrorFlops = 2e12;
// The choice leaves the rest of the limit to the difference between its samples and others.
constexpr double kChoiceShare = 0.9;

/// Samples with the outputs of the model, and their labels.
struct MeasuredSamples {
  std::vector<NamedTensors> inputs;
  std::vector<int64_t> labels;
  SampleOutputs reference;

  MeasuredSamples first(size_t count) const {
    count = std::min(count, inputs.size());
    const auto head = [count](const auto& all) {
      using List = std::remove_cvref_t<decltype(all)>;
      return List(all.begin(),
                  all.begin() + static_cast<std::ptrdiff_t>(std::min(count, all.size())));
    };
    return {head(inputs), head(labels), head(reference)};
  }
};

// The numbers of the samples of each part.
struct Parts {
  std::vector<size_t> calibrated, chosen_by, held_out;
};

Parts parts_of(size_t count) {
  Parts parts;
  const bool has_four = count >= 4;
  for (size_t i = 0; i < count; ++i)
    (i % 2 == 0 || count == 1 ? parts.calibrated
     : has_four && i % 4 == 1 ? parts.chosen_by
                              : parts.held_out)
        .push_back(i);
  if (!has_four) parts.chosen_by = parts.calibrated;
  if (count == 1) parts.held_out = parts.calibrated;
  return parts;
}

MeasuredSamples measured(const EditableModel& model,
                         const QuantizeData& data,
                         const std::vector<size_t>& numbers) {
  MeasuredSamples part;
  for (const size_t i : numbers) {
    part.inputs.push_back(data.samples.samples[i]);
    if (!data.labels.empty()) part.labels.push_back(data.labels.at(i));
  }
  part.reference = outputs_on(model, part.inputs);
  return part;
}

class Quantization {
 public:
  Quantization(const EditableModel& model, const QuantizeData& data, const QuantizeOptions& options)
      : options_(options), original_(model), base_(model), result_{.model = model} {
    form_.method = options.method;
    check(!data.samples.samples.empty(), "[quantize] there are no samples");
    check_model(model);
    options.on_progress("the model as it is");
    const Parts parts = parts_of(data.samples.samples.size());
    for (const size_t i : parts.calibrated) calibration_.push_back(data.samples.samples[i]);
    choice_ = measured(model, data, parts.chosen_by);
    statement_ = measured(model, data, parts.held_out);
    if (!data.labels.empty()) check_labels(data.labels);
    result_.samples = {.calibrated = parts.calibrated.size(),
                       .chosen_by = parts.chosen_by.size(),
                       .held_out = parts.held_out.size(),
                       .is_choice_apart = parts.chosen_by != parts.calibrated,
                       .is_held_out_apart = parts.held_out != parts.calibrated};
    result_.limit = options.max_drop.value_or(scored_.empty() ? QuantizeOptions::kDefaultDrop
                                                              : QuantizeOptions::kDefaultPoints);
    prepare();
  }

  QuantizeResult run() {
    measure_sites();
    choose();
    state();
    return std::move(result_);
  }

 private:
  bool is_static() const { return options_.method == QuantizeMethod::kStatic; }

  void check_labels(const std::vector<int64_t>& labels) {
    scored_ = scored_output(choice_.reference[0]);
    const int64_t classes = choice_.reference[0].at(scored_).elements();
    for (size_t i = 0; i < labels.size(); ++i)
      check(labels[i] >= 0 && labels[i] < classes,
            "[quantize] label {} of sample {} is none of {} classes",
            labels[i],
            i,
            classes);
  }

  void check_model(const EditableModel& model) const {
    check_is_float(model);
    const int64_t least = least_opset(options_.method);
    if (model.opset() < least)
      throw UserError(
          fmt::format("{}: its operators are of version {}; the {} form needs {} or later",
                      model.name(),
                      model.opset(),
                      name_of(options_.method),
                      least),
          "convert it first, as onnx.version_converter does");
    check(is_static() || (!options_.equalize && !options_.correct_bias.value_or(false)),
          "[quantize] equalization and bias correction are for the static method");
  }

  // Norms are folded, sites found and their scales known.
  void prepare() {
    if (is_static()) {
      result_.folded_norms = fold_norms(base_);
      if (options_.equalize) result_.equalized_pairs = equalize(base_);
    }
    SiteList list = find_sites(base_);
    check_names(list);
    for (KeptSite& kept : list.kept) keep(kept.name, kept.op, std::move(kept.reason));
    for (Site& site : list.sites) {
      if (std::ranges::find(options_.keep, site.name) != options_.keep.end())
        keep(site.name, site.op, "--keep names it");
      else if (!is_static() && site.is_conv())
        keep(site.name, site.op, "the dynamic method is for products alone");
      else
        form_.sites.push_back(std::move(site));
    }
    find_types();
    if (is_static()) calibrate_sites();
    if (form_.sites.empty()) refuse();
    use({.ranges = ways_of_ranges().front(),
         .corrects_bias = options_.correct_bias.value_or(false)});
    if (options_.gain == GainMeasure::kTime) measure_times();
    choose_form();
  }

  [[noreturn]] void refuse() const {
    std::string reasons;
    for (const SiteResult& site : result_.sites)
      if (reasons.size() < 300)
        reasons += fmt::format("; {} ({}): {}", site.name, site.op, site.reason);
    throw UserError(fmt::format("{}: no node can be quantized{}", base_.name(), reasons),
                    "Conv, Gemm and MatMul of f32 with constant weights can");
  }

  void check_names(const SiteList& list) const {
    std::vector<std::string> names;
    for (const Site& site : list.sites) names.push_back(site.name);
    for (const KeptSite& site : list.kept) names.push_back(site.name);
    for (const std::string& name : options_.keep)
      if (std::ranges::find(names, name) == names.end())
        throw UserError(
            fmt::format("{}: --keep names '{}', which is no Conv, Gemm or MatMul of the model",
                        base_.name(),
                        name),
            did_you_mean(name, names));
  }

  void keep(const std::string& name, const std::string& op, std::string reason) {
    result_.sites.push_back({.name = name, .op = op, .reason = std::move(reason)});
  }

  // Sites for which `problem` has a reason stay as they are.
  void keep_where(const std::function<std::string(const Site&)>& problem) {
    std::vector<Site> left;
    for (Site& site : form_.sites) {
      std::string reason = problem(site);
      if (reason.empty())
        left.push_back(std::move(site));
      else
        keep(site.name, site.op, std::move(reason));
    }
    form_.sites = std::move(left);
  }

  void find_types() {
    std::set<std::string> values;
    for (const Site& site : form_.sites) values.insert({site.input, site.output});
    types_ = types_of(base_, calibration_[0], values);
    keep_where([&](const Site& site) {
      const DType dtype = types_.at(site.input).dtype;
      return dtype == DType::kF32 ? std::string() : fmt::format("its input is {}", name_of(dtype));
    });
    for (const Site& site : form_.sites) {
      const Shape& weights = base_.constant(site.weights)->dims;
      double each = 2;  // a multiplication and an addition
      for (size_t i = 0; i < weights.size(); ++i)
        if (static_cast<int64_t>(i) != site.axis) each *= static_cast<double>(weights[i]);
      flops_[site.output] = each * static_cast<double>(types_.at(site.output).elements());
    }
  }

  void calibrate_sites() {
    options_.on_progress("calibration");
    std::set<std::string> all;
    for (const Site& site : form_.sites) all.insert(site.output);
    WantedActivations wanted;
    const QuantizedPoints points = points_of(base_, form_.sites, all);
    std::set<std::string> names;
    for (const auto& [value, from] : points.range_of) names.insert({value, from});
    for (const auto& [name, type] : types_of(base_, calibration_[0], names))
      if (type.dtype == DType::kF32) wanted[name];
    if (options_.correct_bias.value_or(true))
      for (const Site& site : form_.sites)
        if (site.may_have_bias()) wanted[site.input].insert(site.channels_axis);
    activations_ = calibrate(base_, calibration_, wanted);
    keep_where([&](const Site& site) {
      const std::string& problem = activations_.at(site.input).problem;
      return problem.empty() ? std::string() : fmt::format("its input has {}", problem);
    });
  }

  std::vector<RangeMethod> ways_of_ranges() const {
    if (options_.ranges) return {*options_.ranges};
    // Weights have no percentile.
    if (!is_static()) return {RangeMethod::kMinMax, RangeMethod::kMse};
    return {RangeMethod::kMinMax, RangeMethod::kPercentile, RangeMethod::kMse};
  }

  void use(const TriedForm& way) {
    form_.ranges = result_.ranges = way.ranges;
    result_.corrects_bias = way.corrects_bias;
    form_.scales = scales_of(activations_, way.ranges);
    form_.means.clear();
    for (const Site& site : form_.sites)
      if (way.corrects_bias && site.may_have_bias())
        form_.means[site.output] = activations_.at(site.input).means.at(site.channels_axis);
  }

  // The way that the options say, else the one by which all sites in bytes err least.
  void choose_form() {
    const std::vector<RangeMethod> ways = ways_of_ranges();
    const bool tries_bias = is_static() && !options_.correct_bias &&
                            std::ranges::any_of(form_.sites, &Site::may_have_bias);
    if (form_.sites.empty() || (ways.size() == 1 && !tries_bias)) return;
    for (const RangeMethod ranges : ways)
      try_form({.ranges = ranges, .corrects_bias = options_.correct_bias.value_or(false)});
    if (tries_bias) try_form({.ranges = least_tried().ranges, .corrects_bias = true});
    use(least_tried());
  }

  void try_form(TriedForm way) {
    options_.on_progress(fmt::format(
        "ranges by {}{}", name_of(way.ranges), way.corrects_bias ? ", biases corrected" : ""));
    use(way);
    std::set<std::string> all;
    for (const Site& site : form_.sites) all.insert(site.output);
    const MeasuredSamples some = choice_.first(kErrorSamples);
    way.error = error_power(some.reference, outputs_on(in_form(base_, form_, all), some.inputs));
    result_.tried.push_back(way);
  }

  const TriedForm& least_tried() const {
    return *std::ranges::min_element(result_.tried, {}, &TriedForm::error);
  }

  // Sites that save no time stay as they are.
  void measure_times() {
    options_.on_progress("times of sites");
    times_ = options_.times.empty() ? time_sites(base_, form_, types_) : options_.times;
    keep_where([&](const Site& site) {
      const SiteTime& time = times_.at(site.output);
      return time.gain() > 0 ? std::string()
                             : fmt::format("{:.3g} us in bytes, {:.3g} as it is",
                                           time.in_bytes * 1e6,
                                           time.as_it_is * 1e6);
    });
  }

  // In percent, as the limit is.
  double drop_of(const SampleOutputs& outputs, const MeasuredSamples& samples) const {
    if (scored_.empty()) return 100 * error_power(samples.reference, outputs);
    const Score before = score_of(samples.reference, scored_, samples.labels);
    return 100 * (before.accuracy - score_of(outputs, scored_, samples.labels).accuracy);
  }

  void measure_sites() {
    if (form_.sites.empty()) return;
    double flops = 0;
    for (const Site& site : form_.sites) flops += flops_.at(site.output);
    const auto count = static_cast<double>(form_.sites.size());
    const auto affordable = static_cast<size_t>(kErrorFlops / std::max(1.0, flops * count));
    const MeasuredSamples some =
        choice_.first(std::clamp(affordable, kLeastErrorSamples, kErrorSamples));
    const std::vector<double> errors =
        site_errors(with_switches(base_, form_),
                    form_.sites.size(),
                    some.inputs,
                    some.reference,
                    [this](size_t i) { options_.on_progress(form_.sites[i].name); });
    for (size_t i = 0; i < errors.size(); ++i)
      costs_.push_back({.error = errors[i], .gain = gain_of(form_.sites[i])});
  }

  double gain_of(const Site& site) const {
    return options_.gain == GainMeasure::kTime ? times_.at(site.output).gain()
                                               : flops_.at(site.output);
  }

  std::set<std::string> first_in_order(const std::vector<size_t>& order, size_t count) const {
    std::set<std::string> outputs;
    for (size_t i = 0; i < count; ++i) outputs.insert(form_.sites[order[i]].output);
    return outputs;
  }

  void choose() {
    const std::vector<size_t> order = order_by_gain(costs_);
    std::map<size_t, double> drops;
    const size_t count = most_within(order.size(), result_.limit * kChoiceShare, [&](size_t tried) {
      options_.on_progress(fmt::format("{} of {} sites", tried, order.size()));
      return drops[tried] = drop_of(
                 outputs_on(in_form(base_, form_, first_in_order(order, tried)), choice_.inputs),
                 choice_);
    });
    std::vector<SiteResult> chosen;
    for (size_t i = 0; i < order.size(); ++i) {
      const Site& site = form_.sites[order[i]];
      SiteResult of{.name = site.name,
                    .op = site.op,
                    .is_quantized = i < count,
                    .error = costs_[order[i]].error,
                    .flops = flops_.at(site.output),
                    .order = static_cast<int64_t>(i) + 1,
                    .is_tied = i > 0 && costs_[order[i]].worth() == costs_[order[i - 1]].worth()};
      if (const auto time = times_.find(site.output); time != times_.end()) of.time = time->second;
      if (!of.is_quantized)
        of.reason = fmt::format("with the first {} sites in order the drop is {:.3g} %",
                                count + 1,
                                drops.at(count + 1));
      chosen.push_back(std::move(of));
    }
    result_.sites.insert(result_.sites.begin(), chosen.begin(), chosen.end());
    result_.model = in_form(base_, form_, first_in_order(order, count));
  }

  // The statement: on samples that nothing was chosen by.
  void state() {
    options_.on_progress("held-out samples");
    const SampleOutputs outputs = outputs_on(result_.model, statement_.inputs);
    result_.drop = drop_of(outputs, statement_);
    result_.error_power = error_power(statement_.reference, outputs, &result_.output);
    if (options_.gain == GainMeasure::kTime)
      result_.time = time_models(original_, result_.model, statement_.inputs[0]);
    if (scored_.empty()) return;
    result_.before = score_of(statement_.reference, scored_, statement_.labels);
    result_.after = score_of(outputs, scored_, statement_.labels);
  }

  const QuantizeOptions& options_;
  const EditableModel& original_;
  EditableModel base_;  ///< With norms folded and channels equalized.
  QuantizeResult result_;
  std::vector<NamedTensors> calibration_;
  MeasuredSamples choice_, statement_;
  std::string scored_;  ///< The output that labels are of; empty: there are none.
  QuantizedForm form_;
  std::map<std::string, Activations> activations_;  ///< The activations of values that get a scale.
  std::map<std::string, TensorType> types_;         ///< The types of the sites' inputs and outputs.
  std::map<std::string, SiteTime> times_;  ///< The times of sites, by output; kTime alone has them.
  std::map<std::string, double> flops_;    ///< The operations of sites, by output.
  std::vector<SiteCost> costs_;            ///< The costs of sites, in the order of form_.sites.
};

}  // namespace

size_t QuantizeResult::quantized() const {
  return static_cast<size_t>(std::ranges::count_if(sites, &SiteResult::is_quantized));
}

QuantizeResult quantize_model(const EditableModel& model,
                              const QuantizeData& data,
                              const QuantizeOptions& options) {
  return Quantization(model, data, options).run();
}

}  // namespace ridge::compress
