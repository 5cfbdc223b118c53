#include "remcaps/report/html_report.h"

#include <fmt/ranges.h>

#include <set>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/base/text.h"
#include "remcaps/base/version.h"
#include "remcaps/recipe/recipe_changes.h"
#include "remcaps/report/html_report_run.h"
#include "remcaps/report/model_export.h"
#include "remcaps/report/paper_tables.h"
#include "remcaps/runs/metrics.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

// Room for the explorer's encoded data of all runs together. Images, template and JSON get the
// rest of the 20 MB.
constexpr size_t kExplorerBytes = 11'000'000;
// The version of web/src/schema.ts that the page reads.
constexpr int kSchemaVersion = 1;

// The images of one or more runs.
struct SharedImages {
  const ShownRun* first = nullptr;
  std::unique_ptr<ReportImages> images;
  int64_t runs = 0;
};

// Whether both networks are shown the same part of the same pictures. The pixels are compared and
// not the recipes' options: no option can be forgotten.
bool show_the_same(const ShownRun& a, const ShownRun& b) {
  return a.data->name == b.data->name && a.run.class_names == b.run.class_names &&
         geometry_key(a.run.recipe.dataset.augment) == geometry_key(b.run.recipe.dataset.augment) &&
         (a.data == b.data ||
          (a.part.labels.equal(b.part.labels) && a.part.images.equal(b.part.images)));
}

std::string title_of(const std::vector<ShownRun>& runs) {
  std::set<std::string> models, datasets;
  for (const ShownRun& run : runs) {
    models.insert(run.run.recipe.model);
    datasets.insert(run.run.recipe.dataset.name);
  }
  return fmt::format("{} on {}", fmt::join(models, ", "), fmt::join(datasets, ", "));
}

nlohmann::json pair_of(const PaperNumber& number) {
  return {number.value,
          number.deviation ? nlohmann::json(*number.deviation) : nlohmann::json(nullptr)};
}

// The schema's PaperNumbers, from the first table that has this recipe.
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

// Puts the networks into the page, the smallest first, as long as there is room.
void add_networks(const std::vector<ShownRun>& shown, size_t room, nlohmann::json& runs,
                  PageBlobs& blobs) {
  struct Encoded {
    size_t run = 0;
    std::string text;
    int64_t bytes = 0;
  };
  std::vector<Encoded> networks;
  for (size_t r = 0; r < shown.size(); ++r) {
    runs[r]["network"] = nullptr;
    const RunArgument which = parse_run_argument(shown[r].argument);
    LoadedRun run = load_run(which.path, torch::kCPU, which.checkpoint);
    if (const auto bytes = network_for_runtime(run))
      networks.push_back({r, encode_bytes(*bytes), static_cast<int64_t>(bytes->size())});
    else
      runs[r]["no_network"] = run.recipe.model + " has no graph, so that it cannot answer here.";
  }
  std::stable_sort(networks.begin(), networks.end(), [](const Encoded& a, const Encoded& b) {
    return a.text.size() < b.text.size();
  });
  for (Encoded& network : networks) {
    nlohmann::json& run = runs[network.run];
    if (network.text.size() > room) {
      run["no_network"] = fmt::format(
          "this network, {}, would make the report too large. `remcaps report "
          "--all-networks` puts it in.",
          human_bytes(static_cast<double>(network.text.size())));
      continue;
    }
    room -= network.text.size();
    run["network"] = blobs.add(std::move(network.text), "uint8", {network.bytes});
    run["no_network"] = "";
  }
}

}  // namespace

HtmlReportSummary write_html_report(const HtmlReportOptions& options, const fs::path& file) {
  check(!options.runs.empty(), "a report needs at least one run");
  prepare_output(file);
  const std::vector<ShownRun> runs = load_shown_runs(options);
  // Damaged metrics are reported before anything is measured.
  std::vector<nlohmann::json> metrics;
  for (const ShownRun& run : runs) {
    const fs::path path = parse_run_argument(run.argument).path;
    metrics.push_back(fs::is_directory(path) ? read_metrics(RunFolder::open(path).metrics())
                                             : nlohmann::json::object());
  }

  // Runs that share images also share the room for them, so this is settled before the first run is
  // measured.
  std::vector<SharedImages> shared;
  std::vector<size_t> dataset_of;
  for (const ShownRun& run : runs) {
    const auto same = std::find_if(shared.begin(), shared.end(), [&](const SharedImages& other) {
      return show_the_same(*other.first, run);
    });
    dataset_of.push_back(static_cast<size_t>(same - shared.begin()));
    if (same == shared.end()) shared.push_back({&run, nullptr, 0});
    ++shared[dataset_of.back()].runs;
  }
  for (SharedImages& own : shared)
    own.images = std::make_unique<ReportImages>(
        own.first->part, own.first->run.class_names, own.first->run.recipe.dataset.augment,
        options.samples, 1.0 / static_cast<double>(shared.size()));

  HtmlReportSummary summary;
  RecipeChanges changes;
  PageBlobs blobs;
  auto measured = nlohmann::json::array();
  for (size_t r = 0; r < runs.size(); ++r) {
    SharedImages& images = shared[dataset_of[r]];
    const Recipe& recipe = runs[r].run.recipe;
    const RunShare share{.explorer_bytes = kExplorerBytes / runs.size(),
                         .gallery_images = images.images->gallery_capacity() / images.runs};
    nlohmann::json json = measure_run(runs[r], *images.images, share, blobs);
    summary.runs.push_back(runs[r].label);
    json["name"] = runs[r].label;
    json["folder"] = fs::path(runs[r].argument).lexically_normal().string();
    json["dataset"] = dataset_of[r];
    const OptionMap changed = changes.of(recipe.name, yaml_paths(recipe.to_yaml()));
    json["changed"] = changed;
    // The paper's numbers are of its own experiment only.
    json["paper"] = other_experiment(changed).empty() ? paper_numbers(recipe, options.split)
                                                      : nlohmann::json(nullptr);
    json["metrics"] = {{"columns", std::move(metrics[r])}};
    measured.push_back(std::move(json));
  }
  auto datasets = nlohmann::json::array();
  for (const SharedImages& images : shared) {
    nlohmann::json json = images.images->to_json(blobs);
    const std::string& note = images.first->part.note;
    json["name"] = images.first->data->name + (note.empty() ? "" : fmt::format(" ({})", note));
    json["split"] = options.split;
    datasets.push_back(std::move(json));
  }
  const nlohmann::json module = blobs.add(encode_bytes(runtime_module()), "uint8",
                                          {static_cast<int64_t>(runtime_module().size())});
  size_t used =
      html_report_template().size() + json_text(measured).size() + json_text(datasets).size();
  for (const std::string& text : blobs.texts()) used += text.size();
  add_networks(runs, options.most_bytes - std::min(options.most_bytes, used), measured, blobs);
  const std::string page =
      html_page(html_report_template(),
                {{"version", kSchemaVersion},
                 {"generator", fmt::format("remcaps {}", kVersion)},
                 {"title", options.title.empty() ? title_of(runs) : options.title},
                 {"module", module},
                 {"datasets", std::move(datasets)},
                 {"runs", std::move(measured)}},
                blobs);
  write_atomically(file, page);
  summary.bytes = page.size();
  return summary;
}

}  // namespace remcaps
