// A golden file of a published network: parameters and input made by formula, results to compare
// with.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "remcaps/torch/safetensors.h"

namespace remcaps::testing {

using torch::Tensor;

class GoldenCase {
 public:
  explicit GoldenCase(const std::string& name)
      : file_(folder() / (name + ".safetensors")),
        salt_(file_.metadata().at("salt")),
        parameters_(nlohmann::json::parse(file_.metadata().at("parameters"))) {}

  static std::filesystem::path folder() {
    const char* given = std::getenv("REMCAPS_GOLDEN");
    return given != nullptr && *given != '\0' ? given : REMCAPS_GOLDEN_FOLDER;
  }

  /// The file without a network: outputs of the published rules on fixed numbers.
  static TensorFile rules() { return TensorFile(folder() / "rules.safetensors"); }

  const TensorFile& file() const { return file_; }
  bool contains(const std::string& tensor) const { return file_.contains(tensor); }
  Tensor load(const std::string& tensor) const { return file_.load(tensor); }

  /// A text of the metadata; empty if there is none.
  std::string text(const std::string& key) const {
    const auto found = file_.metadata().find(key);
    return found == file_.metadata().end() ? "" : found->second;
  }

  std::vector<std::string> parameter_names() const {
    std::vector<std::string> names;
    for (const auto& item : parameters_.items()) names.push_back(item.key());
    return names;
  }
  bool has_parameter(const std::string& name) const { return parameters_.contains(name); }
  std::vector<int64_t> parameter_shape(const std::string& name) const {
    return parameters_.at(name).at(0).get<std::vector<int64_t>>();
  }
  Tensor parameter(const std::string& name) const {
    const auto& entry = parameters_.at(name);
    return values(name, parameter_shape(name), entry.at(1), entry.at(2));
  }
  Tensor input() const {
    const auto entry = nlohmann::json::parse(file_.metadata().at("input"));
    return values(entry.at(0), entry.at(1).get<std::vector<int64_t>>(), entry.at(2), entry.at(3));
  }

  /// The README's formula.
  Tensor values(const std::string& name, const std::vector<int64_t>& shape, double scale,
                double offset) const {
    uint32_t seed = 2166136261u;
    for (const char letter : salt_ + name) {
      seed ^= static_cast<uint8_t>(letter);
      seed *= 16777619u;
    }
    Tensor tensor = torch::empty(shape, torch::kFloat32);
    float* data = tensor.data_ptr<float>();
    for (int64_t e = 0; e < tensor.numel(); ++e) {
      uint32_t h = static_cast<uint32_t>(e) * 2654435761u + seed;
      h ^= h >> 16;
      h *= 0x7feb352du;
      h ^= h >> 15;
      h *= 0x846ca68bu;
      h ^= h >> 16;
      data[e] = static_cast<float>(offset + scale * (h / 2147483648.0 - 1.0));
    }
    return tensor;
  }

  /// |difference| <= relative * max|reference| + 1e-6 for each element.
  void expect_close(const std::string& tensor, const Tensor& ours, double relative = 1e-4) const {
    const Tensor reference = load(tensor).to(torch::kFloat64).flatten();
    ASSERT_EQ(reference.numel(), ours.numel()) << tensor;
    const Tensor found = ours.detach().to(torch::kFloat64).flatten();
    const double bound = relative * reference.abs().max().item<double>() + 1e-6;
    EXPECT_LE((found - reference).abs().max().item<double>(), bound) << tensor;
  }

  /// The gradient of a parameter against grad/NAME, or against the three sums of gradsum/NAME.
  void expect_gradient(const std::string& name, const Tensor& gradient) const {
    ASSERT_TRUE(gradient.defined()) << name << " has no gradient";
    if (contains("grad/" + name)) return expect_close("grad/" + name, gradient);
    ASSERT_TRUE(contains("gradsum/" + name)) << name;
    const Tensor g = gradient.detach().to(torch::kFloat64).flatten();
    const Tensor probe = values("probe:" + name, {g.numel()}, 1.0, 0.0).to(torch::kFloat64);
    const Tensor sums = torch::stack({g.sum(), g.abs().sum(), (g * probe).sum()});
    const Tensor reference = load("gradsum/" + name);
    const double bound = 1e-4 * reference[1].item<double>() + 1e-6;
    EXPECT_LE((sums - reference).abs().max().item<double>(), bound) << "gradsum/" << name;
  }

 private:
  TensorFile file_;
  std::string salt_;
  nlohmann::json parameters_;
};

}  // namespace remcaps::testing
