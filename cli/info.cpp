#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "remcaps/base/json.h"
#include "remcaps/torch/runtime.h"

namespace remcaps::cli {

void add_info(CLI::App& app) {
  auto* command = app.add_subcommand("info", "Versions, devices, threads, BLAS core, SIMD level");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "One JSON object on stdout");
  command->footer("Example:\n  remcaps info --json");
  command->callback([json] {
    const RuntimeInfo info = runtime_info();
    if (*json) {
      fmt::print("{}\n", json_text({{"remcaps", info.remcaps},
                                    {"commit", info.commit},
                                    {"torch", info.torch},
                                    {"compiler", info.compiler},
                                    {"cores", info.cores},
                                    {"threads", info.threads},
                                    {"blas", info.blas},
                                    {"blas_core", info.blas_core},
                                    {"simd", info.simd},
                                    {"devices", info.devices},
                                    {"features", info.features}}));
      return;
    }
    fmt::print("remcaps    {}{}\n", info.remcaps,
               info.commit.empty() ? "" : fmt::format(" (commit {})", info.commit));
    fmt::print("libtorch   {}\n", info.torch);
    fmt::print("compiler   {}\n", info.compiler);
    fmt::print("threads    {} on {} core(s)\n", info.threads, info.cores);
    fmt::print("BLAS       {} {}\n", info.blas, info.blas_core);
    fmt::print("SIMD       {}\n", info.simd);
    fmt::print("GPU        {}\n",
               info.devices.empty() ? "none" : fmt::format("{}", fmt::join(info.devices, "; ")));
    fmt::print("features   {}\n", fmt::join(info.features, ", "));
  });
}

}  // namespace remcaps::cli
