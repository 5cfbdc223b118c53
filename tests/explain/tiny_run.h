// Run folders of tiny untrained networks on a made-up data set, written in a moment.
#pragma once

#include <fmt/format.h>

#include <string>

#include "remcaps/base/files.h"
#include "remcaps/data/formats/prepared.h"
#include "remcaps/recipe/context.h"
#include "remcaps/runs/metrics.h"
#include "remcaps/runs/weights.h"
#include "tests/temporary_folder.h"

namespace remcaps::testing {

class TinyRuns {
 public:
  /// Three classes of noise, 18 x 18 pixels.
  TinyRuns() {
    torch::manual_seed(11);
    SourceData source;
    source.name = "folder";
    source.class_names = {"cat", "dog", "a <b> & c"};
    source.train = noise(12);
    source.test = noise(9);
    write_prepared(data(), source);
  }

  std::filesystem::path data() const { return folder_ / "data.safetensors"; }
  const TemporaryFolder& folder() const { return folder_; }

  /// `model` is the recipe's model section.
  std::string make(const std::string& name, const std::string& model,
                   const std::string& more = "") const {
    const YAML::Node yaml = YAML::Load(
        fmt::format("dataset: {{name: folder, folder: '{}', validation: 3}}\nmodel: {}\n{}",
                    data().string(), model, more));
    Recipe recipe = parse_recipe(yaml, "tiny/" + name);
    const DataSplits splits = load_dataset(recipe.dataset, folder_.path());
    WeightsInfo info;
    info.context = model_context(recipe, splits);
    const auto network = build_model(recipe, info.context);
    info.recipe = recipe;
    info.class_names = splits.class_names;
    const std::filesystem::path run = folder_ / name;
    make_folder(run);
    write_atomically(run / "recipe.yaml", recipe.to_text());
    write_atomically(run / "run.json", fmt::format(R"({{"recipe": "{}"}})", recipe.name));
    for (const char* file : {"best.safetensors", "last.safetensors", "epoch-0000.safetensors"})
      save_weights(run / file, *network, info);
    return run.string();
  }

  /// Four capsule types on a 4 x 4 grid, and a decoder.
  std::string on_grid(const std::string& name = "grid") const {
    return make(name,
                "{name: dr-capsnet, conv_channels: 4, primary_types: 4, primary_dim: 4, "
                "conv_kernel: 5, primary_kernel: 5, primary_stride: 3, decoder: fc, "
                "decoder_hidden: [8]}");
  }

  /// Layers of 4, 5 and 3 capsules, without a place.
  std::string layered(const std::string& name = "layered") const {
    return make(name,
                "{name: dr-capsnet, conv_channels: 4, conv_kernel: 9, primary_types: 4, "
                "primary_dim: 4, primary_kernel: 10, primary_stride: 1, hidden: [5]}");
  }

 private:
  static Dataset noise(int64_t count) {
    Dataset dataset;
    dataset.images = torch::randint(0, 256, {count, 1, 18, 18}, torch::kByte);
    dataset.labels = torch::arange(count) % 3;
    return dataset;
  }

  TemporaryFolder folder_;
};

}  // namespace remcaps::testing
