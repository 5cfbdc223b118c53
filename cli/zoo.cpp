// remcaps zoo: the trained networks that come with the program, by the numbers in their files.
#include "remcaps/runs/zoo.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/base/message.h"
#include "remcaps/base/progress.h"
#include "remcaps/base/text.h"
#include "remcaps/tensors/safetensors.h"

namespace remcaps::cli {
namespace {

using nlohmann::json;

constexpr const char* kCardKeys[] = {"accuracy", "accuracy_quantized", "entropy", "sparsity",
                                     "parameters_nonzero"};

// The numbers of a card are those of `export`. A weights file without one has null in their place.
json zoo_entry(const std::string& name) {
  const std::filesystem::path file = find_in_zoo("zoo:" + name);
  const SafetensorsFile weights(file);
  const auto found = weights.metadata().find("card");
  json card = json::object();
  if (found != weights.metadata().end()) {
    card = json::parse(found->second, nullptr, /*allow_exceptions=*/false);
    check(card.is_object(), "{}: its card is damaged", file.string());
  }
  json entry = {{"name", "zoo:" + name},
                {"file", file.string()},
                {"bytes", std::filesystem::file_size(file)}};
  for (const char* key : kCardKeys) {
    entry[key] = card.value(key, json());
    check(entry[key].is_null() || entry[key].is_number(), "{}: its card is damaged", file.string());
  }
  return entry;
}

std::string zoo_cell(const json& value, double scale, int digits) {
  return value.is_null() ? "-" : fmt::format("{:.{}f}", scale * value.get<double>(), digits);
}

// On a terminal that is too narrow for whole names, the networks of a data set stand below its name.
void print_zoo(const std::vector<json>& entries, std::optional<size_t> columns) {
  const std::string numbers = "  accuracy  quantized  entropy  sparsity       size";
  const auto widest = [&](const auto& shown) {
    size_t width = std::string("network").size();
    for (const json& entry : entries) width = std::max(width, shown(entry["name"]).size());
    return width;
  };
  const auto whole = [](const std::string& name) { return name; };
  const auto below = [](const std::string& name) { return " " + name.substr(name.find('/') + 1); };
  const bool grouped = columns && widest(whole) + numbers.size() > *columns;
  const size_t width = grouped ? widest(below) : widest(whole);
  fmt::print("{:<{}}{}\n", "network", width, numbers);
  std::string group;
  for (const json& entry : entries) {
    const std::string name = entry["name"];
    if (const std::string own = name.substr(0, name.find('/') + 1); grouped && own != group) {
      fmt::print("{}\n", own);
      group = own;
    }
    fmt::print("{:<{}}  {:>6} %   {:>6} %  {:>3} bit  {:>6} %  {:>9}\n",
               grouped ? below(name) : name, width, zoo_cell(entry["accuracy"], 100, 2),
               zoo_cell(entry["accuracy_quantized"], 100, 2), zoo_cell(entry["entropy"], 1, 1),
               zoo_cell(entry["sparsity"], 100, 1), human_bytes(entry["bytes"].get<double>()));
  }
}

void list_zoo(bool as_json) {
  const std::vector<std::string> names = zoo_names();
  std::vector<json> entries;
  for (const std::string& name : names) try {
      entries.push_back(zoo_entry(name));
    } catch (const Error& error) {
      say("remcaps: {}", error.what());
    }
  if (as_json)
    fmt::print("{}\n", json_text({{"networks", entries}}));
  else if (names.empty())
    fmt::print("no trained networks here; $REMCAPS_MODELS names their folder\n");
  else
    print_zoo(entries, terminal_columns(STDOUT_FILENO));
  std::fflush(stdout);
  check(entries.size() == names.size(), "{} of {} networks cannot be read",
        names.size() - entries.size(), names.size());
}

}  // namespace

void add_zoo(CLI::App& app) {
  auto* zoo = app.add_subcommand("zoo", "The trained networks that come with the program");
  zoo->require_subcommand(1);
  zoo->footer("Example:\n  remcaps zoo list");
  auto* command =
      zoo->add_subcommand("list", "Accuracy, entropy, sparsity and size of every network");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "One JSON object on stdout; accuracies are 0 to 1");
  command->footer(
      "Example:\n  remcaps zoo list\n\n"
      "The numbers are those of the networks' cards: nothing is evaluated. `quantized` is the\n"
      "accuracy with quantized couplings, `entropy` that of the parse trees.");
  command->callback([as_json] { list_zoo(*as_json); });
}

}  // namespace remcaps::cli
