#include "remcaps/report/html_report.h"

#include <fmt/ranges.h>

#include <set>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/version.h"
#include "remcaps/report/html_report_run.h"
#include "remcaps/report/paper_tables.h"
#include "remcaps/report/recipe_changes.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

// What the explorer knows of all runs together, packed: images, template and JSON have the rest of
// 20 MB.
constexpr size_t kExplorerBytes = 11'000'000;
// The page shows the schema this version stands for (web/src/schema.ts).
constexpr int kSchemaVersion = 1;

// Runs of one data set, and the images they share.
struct SharedImages {
  std::string name;
  std::unique_ptr<ReportImages> images;
  int64_t runs = 0;
};

// Everything that decides which files are read and how they are split.
std::string data_key(const LoadedRun& run) {
  const DatasetOptions& dataset = run.recipe.dataset;
  return fmt::format("{}|{}|{}|{}|{}|{}|{}", dataset.name, dataset.protocol, dataset.folder,
                     dataset.validation, dataset.limit_train, dataset.limit_test,
                     run.data_root.string());
}

// Data sets are read once, however many runs use them.
class DataCache {
 public:
  explicit DataCache(std::string from_command_line) : data_(std::move(from_command_line)) {}

  const DataSplits& of(const LoadedRun& run) {
    auto& splits = loaded_[data_key(run)];
    if (!splits) splits = std::make_unique<DataSplits>(run.load_data(data_));
    return *splits;
  }

 private:
  std::string data_;
  std::map<std::string, std::unique_ptr<DataSplits>> loaded_;
};

// "fashion-mnist/eff-capsnet" without the data set where all runs have the same one.
std::string short_recipe(const Recipe& recipe, bool one_dataset) {
  if (!one_dataset) return recipe.name;
  return recipe.name.substr(recipe.name.find_last_of('/') + 1);
}

bool all_differ(const std::vector<std::string>& names) {
  return std::set<std::string>(names.begin(), names.end()).size() == names.size();
}

// Paths without the folders they begin and end with in common.
std::vector<std::string> distinct_parts(const std::vector<fs::path>& paths) {
  std::vector<std::vector<fs::path>> parts;
  for (const fs::path& path : paths) {
    const fs::path normal = path.lexically_normal();
    parts.emplace_back(normal.begin(), normal.end());
  }
  const auto shared = [&](auto part_of) {
    return std::all_of(parts.begin(), parts.end(), [&](const auto& own) {
      return own.size() > 1 && part_of(own) == part_of(parts.front());
    });
  };
  while (shared([](const auto& own) { return own.front(); }))
    for (auto& own : parts) own.erase(own.begin());
  while (shared([](const auto& own) { return own.back(); }))
    for (auto& own : parts) own.pop_back();
  std::vector<std::string> names;
  for (const auto& own : parts) {
    fs::path path;
    for (const fs::path& part : own) path /= part;
    names.push_back(path.string());
  }
  return names;
}

// A name for each run: its recipe, and as much more as it takes to tell them apart.
std::vector<std::string> run_names(const std::vector<LoadedRun>& runs,
                                   const std::vector<fs::path>& paths) {
  std::set<std::string> datasets;
  for (const LoadedRun& run : runs) datasets.insert(run.recipe.dataset.name);
  std::vector<std::string> names, with_seed;
  for (const LoadedRun& run : runs) {
    names.push_back(short_recipe(run.recipe, datasets.size() == 1));
    with_seed.push_back(fmt::format("{}, seed {}", names.back(), run.recipe.train.seed));
  }
  if (all_differ(names)) return names;
  if (all_differ(with_seed)) return with_seed;
  const std::vector<std::string> parts = distinct_parts(paths);
  for (size_t r = 0; r < runs.size(); ++r) names[r] += fmt::format(" ({})", parts[r]);
  if (all_differ(names)) return names;
  for (size_t r = 0; r < runs.size(); ++r) names[r] += fmt::format(" {}", r + 1);
  return names;
}

std::string title_of(const std::vector<LoadedRun>& runs) {
  std::set<std::string> models, datasets;
  for (const LoadedRun& run : runs) {
    models.insert(run.recipe.model);
    datasets.insert(run.recipe.dataset.name);
  }
  return fmt::format("{} on {}", fmt::join(models, ", "), fmt::join(datasets, ", "));
}

nlohmann::json pair_of(const PaperNumber& number) {
  return {number.value,
          number.deviation ? nlohmann::json(*number.deviation) : nlohmann::json(nullptr)};
}

// The schema's PaperNumbers: what the first table that has this recipe says of it.
nlohmann::json paper_numbers(const Recipe& recipe, const std::string& split) {
  for (const PaperTable& table : paper_tables()) {
    nlohmann::json numbers;
    for (const PaperRow& row : table.rows)
      for (const auto& cell : row.cells) {
        if (!cell || !cell->paper || cell->recipe != recipe.name || cell->split != split) continue;
        if (cell->metric == Metric::kAccuracy)
          numbers["accuracy"] = pair_of(*cell->paper);
        else if (cell->metric == Metric::kAccuracyQuantized)
          numbers["accuracy_quantized"] = pair_of(*cell->paper);
        else if (cell->metric == Metric::kEntropy)
          numbers["entropy"] = pair_of(*cell->paper);
        else if (cell->metric == Metric::kSparsity)
          numbers["sparsity"] = cell->paper->value;
      }
    if (numbers.is_null()) continue;
    numbers["arm"] = recipe.prunes() ? "REM" : "Q";
    numbers["source"] = table.paper.empty() ? table.title : table.paper;
    return numbers;
  }
  return nullptr;
}

}  // namespace

HtmlReportSummary write_html_report(const std::vector<fs::path>& paths,
                                    const HtmlReportOptions& options, torch::Device device,
                                    const fs::path& file) {
  check(!paths.empty(), "a report needs at least one run");
  prepare_output(file);
  std::vector<LoadedRun> runs;
  auto metrics = nlohmann::json::array();
  for (const fs::path& path : paths) {
    runs.push_back(load_run(path, device));
    metrics.push_back(fs::is_directory(path) ? read_metrics(RunFolder::open(path).metrics())
                                             : nlohmann::json::object());
  }

  // Which runs share images has to be known before the first one is measured: they share the room
  // for them, too.
  DataCache cache(options.data);
  std::map<std::string, size_t> place_of;
  std::vector<size_t> dataset_of;
  for (const LoadedRun& run : runs) {
    const DataSplits& data = cache.of(run);
    const Dataset& images = data.split(options.split);
    check(images.size() > 0, "{}: the {} split has no images", data.name, options.split);
    const std::string key =
        fmt::format("{}|{}|{}|{}|{}", data.name, run.recipe.dataset.protocol, images.size(),
                    fmt::join(run.class_names, ","), geometry_key(run.recipe.dataset.augment));
    dataset_of.push_back(place_of.emplace(key, place_of.size()).first->second);
  }
  std::vector<SharedImages> shared(place_of.size());
  for (size_t r = 0; r < runs.size(); ++r) {
    SharedImages& own = shared[dataset_of[r]];
    ++own.runs;
    if (own.images) continue;
    const DataSplits& data = cache.of(runs[r]);
    own.name = data.name;
    own.images = std::make_unique<ReportImages>(data.split(options.split), runs[r].class_names,
                                                runs[r].recipe.dataset.augment, options.samples,
                                                1.0 / static_cast<double>(shared.size()));
  }

  HtmlReportSummary summary;
  summary.runs = run_names(runs, paths);
  RecipeChanges changes;
  PageBlobs blobs;
  auto measured = nlohmann::json::array();
  for (size_t r = 0; r < runs.size(); ++r) {
    SharedImages& images = shared[dataset_of[r]];
    const RunShare share{.explorer_bytes = kExplorerBytes / runs.size(),
                         .gallery_images = images.images->gallery_capacity() / images.runs};
    nlohmann::json json = measure_run(runs[r], runs[r].source(cache.of(runs[r]), options.split),
                                      *images.images, share, blobs);
    json["name"] = summary.runs[r];
    json["folder"] = paths[r].lexically_normal().string();
    json["dataset"] = dataset_of[r];
    const OptionMap changed = changes.of(runs[r].recipe.name, yaml_paths(runs[r].recipe.to_yaml()));
    json["changed"] = changed;
    // Another experiment is not the paper's any more.
    json["paper"] = other_experiment(changed).empty() ? paper_numbers(runs[r].recipe, options.split)
                                                      : nlohmann::json(nullptr);
    json["metrics"] = {{"columns", std::move(metrics[r])}};
    measured.push_back(std::move(json));
  }
  auto datasets = nlohmann::json::array();
  for (const SharedImages& images : shared) {
    nlohmann::json json = images.images->to_json(blobs);
    json["name"] = images.name;
    json["split"] = options.split;
    datasets.push_back(std::move(json));
  }
  const std::string page =
      html_page({{"version", kSchemaVersion},
                 {"generator", fmt::format("remcaps {}", kVersion)},
                 {"title", options.title.empty() ? title_of(runs) : options.title},
                 {"datasets", std::move(datasets)},
                 {"runs", std::move(measured)}},
                blobs);
  write_atomically(file, page);
  summary.bytes = page.size();
  return summary;
}

}  // namespace remcaps
