#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/explain/pasted.h"

namespace remcaps::cli {

void add_paste(CLI::App& app) {
  auto* command = app.add_subcommand(
      "paste", "Makes the truth test's data: objects pasted on clutter, with masks");
  struct Command {
    std::filesystem::path out;
    DatasetOptions dataset;
    PasteOptions paste;
    std::string data;
  };
  auto options = std::make_shared<Command>();
  command->add_option("out", options->out, "The safetensors file to write")->required();
  command->add_option("--from", options->dataset.name, "Data set whose images are pasted")
      ->capture_default_str();
  command->add_option("--side", options->paste.side, "Side of the canvas, pixels")
      ->check(between(8, 512))
      ->capture_default_str();
  command->add_option("--fragments", options->paste.fragments, "Pieces of other images around it")
      ->check(between(0, 1000))
      ->capture_default_str();
  command->add_option("--fragment-side", options->paste.fragment_side, "Side of a piece, pixels")
      ->check(between(1, 256))
      ->capture_default_str();
  command->add_option("--seed", options->paste.seed, "Of places and pieces")->capture_default_str();
  command->add_option("--data", options->data,
                      "Folder of the data sets (default: $REMCAPS_DATA, else ~/.cache/remcaps)");
  command->footer(
      "Example:\n  remcaps paste pasted.safetensors\n"
      "  remcaps train fashion-mnist/dr-capsnet --set dataset.name=folder "
      "--set dataset.folder=pasted.safetensors --out runs/pasted/dr-capsnet\n"
      "  remcaps figure object-share runs/pasted/dr-capsnet/seed-42");
  command->callback([options] {
    if (options->out.extension() != ".safetensors")
      throw UsageError(
          fmt::format("{}: expected a name that ends in .safetensors", options->out.string()));
    prepare_output(options->out);
    const DataSplits data = load_dataset(options->dataset, data_root(options->data));
    write_pasted(data, options->paste, options->out);
    fmt::print("{}\n{}\n", options->out.string(), masks_file(options->out).string());
  });
}

}  // namespace remcaps::cli
