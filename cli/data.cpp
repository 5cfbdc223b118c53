#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/base/message.h"
#include "remcaps/base/text.h"
#include "remcaps/data/descriptor.h"
#include "remcaps/data/fetch.h"
#include "remcaps/data/formats/prepared.h"
#include "remcaps/data/source.h"
#include "remcaps/data/verify.h"

namespace remcaps::cli {
namespace fs = std::filesystem;
namespace {

struct DataOptions {
  std::string data, name, folder, out;
  int64_t image_size = 0, seed = 42;
  bool json = false, strict = false, again = false;

  fs::path root() const { return data_root(data); }
  DatasetOptions dataset(const std::string& which) const {
    DatasetOptions options;
    options.name = which;
    options.folder = folder;
    options.image_size = image_size;
    return options;
  }
};

// The prepared file, the folder of the files or the generated test set; empty if nothing is there.
fs::path place_of(const DatasetDescriptor& dataset, const fs::path& root) {
  fs::path place = find_prepared(dataset.name, "", root);
  if (place.empty()) place = find_files(dataset, "", root);
  return place.empty() ? find_generated_test(dataset, "", root) : place;
}

// Where a data set is, or how to get it.
std::string status_of(const DatasetDescriptor& dataset, const fs::path& root) {
  if (const fs::path place = place_of(dataset, root); !place.empty()) return place.string();
  if (dataset.providers.empty()) return dataset.by_hand;
  return fmt::format("remcaps data {} {}", dataset.generate_test ? "fetch or make" : "fetch",
                     dataset.name);
}

void list(const DataOptions& options) {
  const fs::path root = options.root();
  nlohmann::json sets = nlohmann::json::array();
  if (!options.json)
    fmt::print("data folder: {}\n\n{:<14} {:<10} {:>8} {:>8}  {}\n", root.string(), "name",
               "images", "train", "test", "where");
  for (const DatasetDescriptor& dataset : datasets()) {
    const bool found = !place_of(dataset, root).empty();
    const std::string status = status_of(dataset, root);
    if (options.json) {
      sets.push_back({{"name", dataset.name},
                      {"title", dataset.title},
                      {"found", found},
                      {"where", found ? status : ""},
                      {"shape", dataset.shape},
                      {"train", dataset.train_images},
                      {"test", dataset.test_images},
                      {"terms", dataset.terms}});
      continue;
    }
    const auto count = [](int64_t n) { return n > 0 ? with_commas(n) : std::string("any"); };
    fmt::print("{:<14} {:<10} {:>8} {:>8}  {}\n", dataset.name,
               dataset.shape.empty() ? "any" : shape_text(dataset.shape),
               count(dataset.train_images), count(dataset.test_images),
               found ? status : fmt::format("- ({})", status));
  }
  if (options.json) fmt::print("{}\n", json_text({{"data", root.string()}, {"datasets", sets}}));
}

void print_report(const VerifyReport& report) {
  for (const std::string& note : report.notes) fmt::print("{:<14} note: {}\n", report.name, note);
  if (!report.fine()) return;
  fmt::print("{:<14} fine: {} training, {}{} test images of {}, {} classes, in {}\n", report.name,
             with_commas(report.train),
             report.validation > 0 ? with_commas(report.validation) + " validation, " : "",
             with_commas(report.test), shape_text(report.shape), report.classes,
             report.where.string());
}

// The data sets to verify: the one that is named, the pictures in --folder, or all that are there.
std::vector<std::string> wanted_sets(const DataOptions& options, const fs::path& root) {
  if (!options.name.empty()) return {options.name};
  if (!options.folder.empty()) return {kPictureFolder};
  std::vector<std::string> names;
  for (const DatasetDescriptor& dataset : datasets())
    if (!place_of(dataset, root).empty()) names.push_back(dataset.name);
  return names;
}

void verify(const DataOptions& options) {
  const fs::path root = options.root();
  nlohmann::json reports = nlohmann::json::array();
  std::vector<std::string> problems;
  int64_t checked = 0;
  for (const std::string& name : wanted_sets(options, root)) {
    VerifyReport report = verify_dataset(options.dataset(name), root);
    if (options.strict) {
      report.problems.insert(report.problems.end(), report.notes.begin(), report.notes.end());
      report.notes.clear();
    }
    ++checked;
    problems.insert(problems.end(), report.problems.begin(), report.problems.end());
    if (options.json)
      reports.push_back({{"name", report.name},
                         {"fine", report.fine()},
                         {"where", report.where.string()},
                         {"shape", report.shape},
                         {"train", report.train},
                         {"validation", report.validation},
                         {"test", report.test},
                         {"classes", report.classes},
                         {"problems", report.problems},
                         {"notes", report.notes}});
    else
      print_report(report);
  }
  if (options.json)
    fmt::print(
        "{}\n",
        json_text({{"data", root.string()}, {"fine", problems.empty()}, {"datasets", reports}}));
  else if (checked == 0)
    fmt::print("no data sets in {} (remcaps data list)\n", root.string());
  // One line for each problem; the last is the error the program ends with.
  for (size_t i = 0; i + 1 < problems.size(); ++i) say("remcaps: {}", problems[i]);
  if (!problems.empty()) throw Error(problems.back());
}

void fetch(const DataOptions& options) {
  const fs::path root = options.root();
  const DatasetDescriptor& dataset = find_dataset(options.name);
  const auto fetch_one = [&](const DatasetDescriptor& wanted) {
    const fs::path there = find_files(wanted, "", root);
    if (!there.empty() && !options.again) {
      fmt::print(
          "{}: already in {} (`remcaps data verify {}` checks it, --again fetches it anew)\n",
          wanted.name, there.string(), wanted.name);
      return;
    }
    fmt::print("{}: in {} ({})\n", wanted.name, fetch_dataset(wanted, root, say_line).string(),
               wanted.terms);
  };
  if (!dataset.based_on.empty()) fetch_one(find_dataset(dataset.based_on));
  fetch_one(dataset);
}

void make(const DataOptions& options) {
  const fs::path root = options.root();
  const DatasetDescriptor& dataset = find_dataset(options.name);
  const fs::path file = write_generated_test(dataset, root, static_cast<uint64_t>(options.seed));
  if (const fs::path official = find_files(dataset, "", root); !official.empty())
    say("remcaps: {}: the official files in {} are read, not what is generated", dataset.name,
        official.string());
  fmt::print("{}: test images generated with seed {} in {} ({})\n", dataset.name, options.seed,
             file.string(), human_bytes(static_cast<double>(fs::file_size(file))));
}

void prepare(const DataOptions& options) {
  const fs::path root = options.root();
  find_dataset(options.name);
  const fs::path out = options.out.empty() ? default_prepared(options.name, options.folder, root)
                                           : fs::path(options.out);
  // A data folder that is not there holds no data set: it is not made for the message about that.
  if (!options.out.empty() || fs::is_directory(out.parent_path())) prepare_output(out);
  const SourceData source = read_files(options.dataset(options.name), root);
  write_prepared(out, source);
  for (const auto& [split, reason] : source.missing)
    say("remcaps: {}: without its {} set: {}", source.name, split, reason);
  fmt::print(
      "{}: {} training, {}{} test images of {} in {} ({})\n", source.name,
      with_commas(source.train.size()),
      source.validation.size() > 0 ? with_commas(source.validation.size()) + " validation, " : "",
      with_commas(source.test.size()), shape_text(source.train.images.sizes().slice(1)),
      out.string(), human_bytes(static_cast<double>(fs::file_size(out))));
}

}  // namespace

void add_data(CLI::App& app) {
  auto* data = app.add_subcommand("data", "List, check, fetch, make and prepare data sets");
  data->require_subcommand(1);
  data->footer("Example:\n  remcaps data fetch mnist && remcaps data verify mnist");
  auto options = std::make_shared<DataOptions>();

  const auto add = [&](const char* name, const char* help, const char* example,
                       void (*action)(const DataOptions&)) {
    auto* command = data->add_subcommand(name, help);
    command->add_option("--data", options->data,
                        "Folder of the data sets (default: $REMCAPS_DATA, else ~/.cache/remcaps)");
    command->footer(std::string("Example:\n  ") + example);
    command->callback([options, action] { action(*options); });
    return command;
  };
  const auto add_source = [&](CLI::App* command) {
    command->add_option("--folder", options->folder, kFolderHelp);
    command
        ->add_option("--image-size", options->image_size,
                     "Side in pixels that folders of images are decoded to")
        ->check(between(0, 4096));
  };

  auto* listing = add("list", "Every data set: its size, and where it is or how to get it",
                      "remcaps data list", list);
  listing->add_flag("--json", options->json, "One JSON object on stdout");

  auto* verifying = add("verify", "Check presence, sizes, counts, checksums and labels",
                        "remcaps data verify cifar10 --data ~/datasets", verify);
  verifying
      ->add_option("name", options->name,
                   "Data set; without it the pictures in --folder, or all that are there")
      ->check([](const std::string& name) {
        find_dataset(name);  // throws with a suggestion
        return std::string();
      });
  verifying->add_flag("--strict", options->strict,
                      "Anything that differs from the authors' own files is an error");
  verifying->add_flag("--json", options->json, "One JSON object on stdout");
  add_source(verifying);

  auto* fetching = add("fetch", "Download a data set, check it and put it in place",
                       "remcaps data fetch cifar10", fetch);
  fetching->add_option("name", options->name, "Data set")->required();
  fetching->add_flag("--again", options->again, "Fetch it even where it is already there");

  auto* making = add("make", "Generate a test set by its author's recipe (affnist)",
                     "remcaps data make affnist", make);
  making->add_option("name", options->name, "Data set")->required();
  making->add_option("--seed", options->seed, "Seed of the random numbers")
      ->capture_default_str()
      ->check(at_least(0));

  auto* preparing = add("prepare", "Decode a data set once into one packed safetensors file",
                        "remcaps data prepare svhn --out svhn.safetensors", prepare);
  preparing->add_option("name", options->name, "Data set")->required();
  preparing->add_option("--out", options->out,
                        "File to write (default: NAME.safetensors in the data folder)");
  add_source(preparing);
}

}  // namespace remcaps::cli
