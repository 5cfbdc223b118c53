// Recipes: YAML texts, merged and overridden. Any other exception than these two is a finding.
#include "fuzz/input_file.h"
#include "remcaps/base/config.h"
#include "remcaps/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const remcaps::fuzz::InputFile input(bytes, size);
  try {
    YAML::Node root =
        remcaps::load_yaml_with_includes(input.path().string(), {{"pruning", "twt", "tolerance"}});
    remcaps::set_yaml_path(root, "train.lr=1");
    remcaps::yaml_paths(root);
    remcaps::ConfigSection section(root, "input");
    int64_t batch = 1;
    double rate = 1;
    section.key("batch", batch, {0, 10});
    section.key("lr", rate, {0, 1});
    section.finish();
  } catch (const remcaps::Error&) {
  }
  try {
    YAML::Node given(YAML::NodeType::Map);
    remcaps::set_yaml_path(given, text);
  } catch (const remcaps::Error&) {
  }
  return 0;
}
