#include "remcaps/data/verify.h"

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"
#include "remcaps/data/gz_reader.h"
#include "remcaps/data/image_folder.h"
#include "remcaps/data/prepared.h"
#include "remcaps/data/readers.h"
#include "remcaps/data/sha256.h"

namespace remcaps {
namespace fs = std::filesystem;
namespace {

// Sizes and checksums of the files that are there; what is missing, the readers tell.
void check_files(const CatalogEntry& entry, const fs::path& folder, VerifyReport& report) {
  for (const PublishedFile& file : entry.files) {
    const fs::path path = plain_or_gz(folder, fs::path(file.path).filename().string());
    if (path.empty() || file.sha256.empty()) continue;
    int64_t bytes = 0;
    const std::string found = sha256_of_content(path, &bytes);
    if (entry.exact && bytes != file.bytes)
      report.problems.push_back(fmt::format("{}: {} bytes; expected {}", path.string(),
                                            with_commas(bytes), with_commas(file.bytes)));
    else if (found != file.sha256)
      (entry.exact ? report.problems : report.notes)
          .push_back(
              entry.exact
                  ? fmt::format("{}: SHA-256 {}; expected {}", path.string(), found, file.sha256)
                  : fmt::format("{}: not the very file its authors publish (SHA-256 {}; theirs "
                                "{}): judged by its contents",
                                path.string(), found, file.sha256));
  }
}

void check_counts(const CatalogEntry& entry, const SourceData& source, VerifyReport& report) {
  report.train = source.train.size();
  report.validation = source.validation.size();
  report.test = source.test.size();
  report.classes = static_cast<int64_t>(source.class_names.size());
  report.shape = source.train.images.sizes().slice(1).vec();
  const auto expect = [&](const char* part, int64_t found, int64_t expected) {
    if (expected > 0 && found != expected)
      report.problems.push_back(fmt::format("{}: {} {} images; expected {}", source.where.string(),
                                            with_commas(found), part, with_commas(expected)));
  };
  expect("training", report.train, entry.train_images);
  if (source.missing.empty()) expect("test", report.test, entry.test_images);
  for (const auto& [split, reason] : source.missing)
    report.notes.push_back(fmt::format("{}: split {}: {}", entry.name, split, reason));
  if (entry.name == "smallnorb")
    for (const auto& [part, name] :
         {std::pair<const Dataset*, const char*>{&source.train, "training"},
          {&source.test, "testing"}})
      if (part->attributes.empty())
        report.notes.push_back(
            fmt::format("{}: no {} -info.mat: the viewpoint protocols cannot be used",
                        source.where.string(), name));
  // A class without a single image is a sign of a wrong or cut label file.
  const torch::Tensor counts = torch::bincount(source.train.labels, {}, report.classes);
  for (int64_t label = 0; label < report.classes; ++label)
    if (counts[label].item<int64_t>() == 0)
      report.problems.push_back(fmt::format("{}: no training image has the label {} ({})",
                                            source.where.string(), label,
                                            source.class_names[static_cast<size_t>(label)]));
}

void verify_files(const CatalogEntry& entry, const DatasetOptions& options, const fs::path& root,
                  VerifyReport& report) {
  // affNIST trains on MNIST's files, which have checksums of their own.
  if (entry.name == "affnist")
    if (const fs::path mnist = find_files(catalog_entry("mnist"), options.folder, root);
        !mnist.empty())
      check_files(catalog_entry("mnist"), mnist, report);
  if (const fs::path folder = find_files(entry, options.folder, root); !folder.empty()) {
    check_files(entry, folder, report);
    if (entry.files.empty()) {
      const ImageSet images = list_images(entry, folder);
      for (const auto* part : {&images.train, &images.validation, &images.test})
        for (std::string& line : damaged_images(*part)) report.problems.push_back(std::move(line));
    }
  }
  // With a file known to be damaged the readers would only say the same again.
  if (!report.problems.empty()) return;
  const SourceData source = read_files(options, root);
  report.where = source.where;
  check_counts(entry, source, report);
}

}  // namespace

VerifyReport verify_dataset(const DatasetOptions& options, const fs::path& root) {
  const CatalogEntry& entry = catalog_entry(options.name);
  VerifyReport report;
  report.name = entry.name;
  report.where = find_files(entry, options.folder, root);
  // affNIST's training images are MNIST's: with those alone the set is there, but for its test.
  const bool files =
      !report.where.empty() || (entry.name == "affnist" &&
                                !find_files(catalog_entry("mnist"), options.folder, root).empty());
  const fs::path prepared = find_prepared(entry.name, options.folder, root);
  report.present = files || !prepared.empty();
  const auto gather = [&](const auto& work) {
    try {
      work();
    } catch (const UsageError&) {
      throw;
    } catch (const Error& error) {
      report.problems.emplace_back(error.what());
    } catch (const fs::filesystem_error& error) {
      report.problems.push_back(
          fmt::format("{}: {}", error.path1().string(), error.code().message()));
    }
  };
  if (files) gather([&] { verify_files(entry, options, root, report); });
  if (!prepared.empty())
    gather([&] {
      const SourceData source = read_prepared(prepared, entry.name);
      report.where = prepared;
      if (!files) check_counts(entry, source, report);
    });
  if (!report.present)
    report.problems.push_back(
        fmt::format("{}: not found in {}{}", entry.name,
                    options.folder.empty() ? root.string() : options.folder,
                    entry.providers.empty()
                        ? "; " + entry.by_hand
                        : fmt::format(" (`remcaps data fetch {}` downloads it)", entry.name)));
  return report;
}

}  // namespace remcaps
