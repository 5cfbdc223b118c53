// remcaps check: every kernel against its plain twin on random inputs, on this machine.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/capsule/check.h"
#include "remcaps/torch/runtime.h"

namespace remcaps::cli {
namespace {

void print_table(const std::vector<Finding>& findings) {
  fmt::print("{:<34} {:<44} {:>9} {:>9}\n", "fused path", "shape", "error", "allowed");
  for (const Finding& finding : findings)
    fmt::print("{:<34} {:<44} {:>9.1e} {:>9.1e}  {}\n", finding.path, finding.shape, finding.error,
               finding.tolerance, finding.passed() ? "ok" : "FAILED");
}

nlohmann::json as_json(const std::vector<Finding>& findings, const std::string& device,
                       int64_t failed) {
  nlohmann::json checks = nlohmann::json::array();
  for (const Finding& finding : findings)
    checks.push_back({{"path", finding.path},
                      {"shape", finding.shape},
                      {"error", finding.error},
                      {"tolerance", finding.tolerance},
                      {"pass", finding.passed()}});
  return {{"device", device}, {"checks", checks}, {"failed", failed}, {"pass", failed == 0}};
}

}  // namespace

void add_check(CLI::App& app) {
  struct Options {
    std::string device = default_device();
    uint64_t seed = 0;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  auto* command = app.add_subcommand(
      "check", "Compare every fused kernel with its plain twin on random inputs");
  command->add_option("--device", options->device, "cpu, cuda or cuda:N")->capture_default_str();
  add_threads(*command);
  command->add_option("--seed", options->seed, "Of the random inputs")->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object on stdout");
  command->footer("Example:\n  remcaps check --device cpu");
  command->callback([options] {
    const std::vector<Finding> findings =
        run_checks(kernel_checks(), parse_device(options->device), options->seed);
    const int64_t failed = std::count_if(findings.begin(), findings.end(),
                                         [](const Finding& finding) { return !finding.passed(); });
    if (options->json)
      fmt::print("{}\n", json_text(as_json(findings, options->device, failed)));
    else
      print_table(findings);
    check(failed == 0, "{} of {} fused results differ from the plain ones on {}", failed,
          findings.size(), options->device);
  });
}

}  // namespace remcaps::cli
