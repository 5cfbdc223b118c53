// One function per subcommand. It adds the subcommand with its options, help and action.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace remcaps::cli {

void add_bench(CLI::App& app);
void add_check(CLI::App& app);
void add_collect(CLI::App& app);
void add_couplings(CLI::App& app);
void add_data(CLI::App& app);
void add_entropy(CLI::App& app);
void add_explain(CLI::App& app);
void add_export(CLI::App& app);
void add_figure(CLI::App& app);
void add_levels(CLI::App& app);
void add_info(CLI::App& app);
void add_page(CLI::App& app);
void add_paste(CLI::App& app);
void add_describe(CLI::App& app);
void add_predict(CLI::App& app);
void add_prune(CLI::App& app);
void add_eval(CLI::App& app);
void add_report(CLI::App& app);
void add_reproduce(CLI::App& app);
void add_resume(CLI::App& app);
void add_status(CLI::App& app);
void add_table(CLI::App& app);
void add_train(CLI::App& app);
void add_zoo(CLI::App& app);

/// All of them, in the order of the help.
void add_commands(CLI::App& app);

/// What is wrong with the arguments: names the word that was not understood and the one that was
/// probably meant.
std::string with_suggestion(const CLI::App& app, const CLI::ParseError& error, char** argv);

}  // namespace remcaps::cli
