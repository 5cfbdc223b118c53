// The arguments of the command line, one per line: they are parsed, no command is run. Any other
// exception than CLI11's own and Error is a finding.
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/run_options.h"
#include "remcaps/base/error.h"
#include "remcaps/training/launch.h"

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines = {"remcaps"};
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin).c_str());  // an argument ends at a zero byte
    begin = end + 1;
  }
  return lines;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  std::vector<std::string> words = lines_of({reinterpret_cast<const char*>(bytes), size});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  CLI::App app;
  remcaps::cli::add_commands(app);
  // Runs before the command's own callback, which owns the options and so cannot be replaced.
  app.parse_complete_callback([] { throw CLI::Success(); });
  try {
    app.parse(static_cast<int>(words.size()), argv.data());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) remcaps::cli::with_suggestion(app, error, argv.data());
  } catch (const remcaps::Error&) {
  }
  for (const std::string& word : words) {
    try {
      remcaps::cli::parse_levels(word);
    } catch (const remcaps::Error&) {
    }
    try {
      remcaps::parse_seeds(word);
    } catch (const remcaps::Error&) {
    }
  }
  return 0;
}
