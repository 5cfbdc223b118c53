#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "cli/commands.h"
#include "remcaps/base/error.h"
#include "remcaps/base/message.h"
#include "remcaps/base/names.h"
#include "remcaps/base/text.h"
#include "remcaps/base/version.h"
#include "remcaps/program.h"
#include "remcaps/tensors/cut_file.h"
#include "remcaps/torch/runtime.h"
#include "remcaps/training/interrupt.h"

namespace {

enum ExitCode { kFine = 0, kFailed = 1, kWrongUsage = 2 };

// The subcommand on the command line, whose flags are suggested.
const CLI::App* deepest(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

ExitCode output_failed(int error) {
  remcaps::say("remcaps: stdout: cannot write: {}", std::strerror(error));
  return kFailed;
}

// Output may still be in a buffer: a full disk must not look like success.
ExitCode finish_output() {
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? kFine : output_failed(errno);
}

}  // namespace

void remcaps::cli::add_commands(CLI::App& app) {
  add_train(app);
  add_resume(app);
  add_eval(app);
  add_entropy(app);
  add_levels(app);
  add_couplings(app);
  add_collect(app);
  add_table(app);
  add_reproduce(app);
  add_status(app);
  add_predict(app);
  add_explain(app);
  add_prune(app);
  add_export(app);
  add_zoo(app);
  add_figure(app);
  add_describe(app);
  add_data(app);
  add_paste(app);
  add_report(app);
  add_page(app);
  add_check(app);
  add_bench(app);
  add_info(app);
}

std::string remcaps::cli::with_suggestion(const CLI::App& app, const CLI::ParseError& error,
                                          char** argv) {
  const bool extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  const bool missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const std::string message = error.what();
  if (!extra && !missing) return message;

  const CLI::App* at = deepest(&app);
  std::vector<std::string> known;
  for (const auto* option : at->get_options())
    for (const auto& name : option->get_lnames()) known.push_back("--" + name);
  const auto commands = at->get_subcommands([](const CLI::App*) { return true; });
  const bool takes_command = !commands.empty();
  for (const auto* command : commands) known.push_back(command->get_name());
  for (char** argument = argv + 1; *argument != nullptr; ++argument) {
    const std::string word = std::string(*argument).substr(0, std::string(*argument).find('='));
    const bool blamed = extra ? message.find(word) != std::string::npos : word[0] != '-';
    if (!blamed || std::find(known.begin(), known.end(), word) != known.end()) continue;
    const std::string nearest = nearest_name(word, known);
    if (!nearest.empty())
      return fmt::format("unknown argument {}; did you mean {}?", word, nearest);
    if (missing && takes_command && word != at->get_name())
      return fmt::format("unknown command {}", word);
  }
  return message;
}

int remcaps::run_program(int argc, char** argv) {
  prepare_process(argv);
  exit_if_a_mapped_file_is_cut();

  CLI::App app{"remcaps: capsule networks, their parse trees, and Routing Entropy Minimization"};
  app.name("remcaps");
  app.set_version_flag("--version", std::string("remcaps ") + remcaps::kVersion);
  app.require_subcommand(1);
  app.footer(
      "Example:\n  remcaps train fashion-mnist/eff-capsnet --seed 42\n\n"
      "remcaps COMMAND --help shows a command's options and an example.");
  remcaps::cli::add_commands(app);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      app.exit(error);  // prints the help or the version
      return finish_output();
    }
    remcaps::say("remcaps: {} (remcaps {}--help)", cli::with_suggestion(app, error, argv),
                 deepest(&app) == &app ? "" : deepest(&app)->get_name() + " ");
    return kWrongUsage;
  } catch (const remcaps::Interrupted& error) {
    remcaps::say("remcaps: {}", error.what());
    return error.exit_code();
  } catch (const remcaps::UsageError& error) {
    remcaps::say("remcaps: {}", error.what());
    return kWrongUsage;
  } catch (const std::exception& error) {
    // fmt's own, if stdout cannot be written
    const auto* output = dynamic_cast<const std::system_error*>(&error);
    if (output != nullptr && std::ferror(stdout) != 0) return output_failed(output->code().value());
    remcaps::say("remcaps: {}", remcaps::error_text(error));
    return kFailed;
  }
  return finish_output();
}
