#include "remcaps/data/verify.h"

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"
#include "remcaps/data/checksum.h"
#include "remcaps/data/formats/gz_reader.h"
#include "remcaps/data/formats/prepared.h"
#include "remcaps/data/source.h"

namespace remcaps {
namespace fs = std::filesystem;
namespace {

// Sizes and checksums of the files that are there. The readers report what is missing.
void check_files(const DatasetDescriptor& dataset, const fs::path& folder, VerifyReport& report) {
  bool unchecked = false;
  for (const PublishedFile& file : dataset.files) {
    const fs::path path = plain_or_gz(folder, fs::path(file.path).filename().string());
    if (path.empty() || file.sha256.empty()) continue;
    const ContentSummary found = summarize_content(path);
    unchecked = unchecked || found.sha256.empty();
    if (dataset.exact && found.bytes != file.bytes)
      report.problems.push_back(fmt::format("{}: {} bytes; expected {}", path.string(),
                                            with_commas(found.bytes), with_commas(file.bytes)));
    else if (found.sha256.empty() || found.sha256 == file.sha256)
      continue;
    else if (dataset.exact)
      report.problems.push_back(
          fmt::format("{}: SHA-256 {}; expected {}", path.string(), found.sha256, file.sha256));
    else
      report.notes.push_back(
          fmt::format("{}: not the very file its authors publish (SHA-256 {}; theirs {}): judged "
                      "by its contents",
                      path.string(), found.sha256, file.sha256));
  }
  if (unchecked)
    report.notes.push_back(fmt::format(
        "{}: checksums were not compared: this build of remcaps has no OpenSSL", dataset.name));
}

void check_counts(const DatasetDescriptor& dataset, const SourceData& source,
                  VerifyReport& report) {
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
  expect("training", report.train, dataset.train_images);
  if (source.missing.empty()) expect("test", report.test, dataset.test_images);
  if (!source.test.note.empty())
    report.notes.push_back(fmt::format("{}: {}", dataset.name, source.test.note));
  for (const auto& [split, reason] : source.missing)
    report.notes.push_back(fmt::format("{}: split {}: {}", dataset.name, split, reason));
  if (!dataset.protocols.empty())
    for (const auto& [part, name] :
         {std::pair<const Dataset*, const char*>{&source.train, "training"},
          {&source.test, "testing"}})
      if (part->attributes.empty())
        report.notes.push_back(fmt::format("{}: no {} {}: the viewpoint protocols cannot be used",
                                           source.where.string(), name, dataset.attribute_files));
  // A class without a single image is a sign of a wrong or cut label file.
  const torch::Tensor counts = torch::bincount(source.train.labels, {}, report.classes);
  for (int64_t label = 0; label < report.classes; ++label)
    if (counts[label].item<int64_t>() == 0)
      report.problems.push_back(fmt::format("{}: no training image has the label {} ({})",
                                            source.where.string(), label,
                                            source.class_names[static_cast<size_t>(label)]));
}

void verify_files(const DatasetDescriptor& dataset, const DatasetOptions& options,
                  const fs::path& root, VerifyReport& report) {
  if (const fs::path base = find_base_files(dataset, options.folder, root); !base.empty())
    check_files(find_dataset(dataset.based_on), base, report);
  if (const fs::path folder = find_files(dataset, options.folder, root); !folder.empty()) {
    check_files(dataset, folder, report);
    if (dataset.list) {
      const ImageSet images = dataset.list(folder);
      for (const auto* part : {&images.train, &images.validation, &images.test})
        for (std::string& line : damaged_images(*part)) report.problems.push_back(std::move(line));
    }
  }
  // With a file known to be damaged the readers would only say the same again.
  if (!report.problems.empty()) return;
  const SourceData source = read_files(options, root);
  report.where = source.where;
  check_counts(dataset, source, report);
}

}  // namespace

VerifyReport verify_dataset(const DatasetOptions& options, const fs::path& root) {
  const DatasetDescriptor& dataset = find_dataset(options.name);
  VerifyReport report;
  report.name = dataset.name;
  report.where = find_files(dataset, options.folder, root);
  const bool files =
      !report.where.empty() || !find_base_files(dataset, options.folder, root).empty();
  const fs::path prepared = find_prepared(dataset.name, options.folder, root);
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
  if (files) gather([&] { verify_files(dataset, options, root, report); });
  if (!prepared.empty())
    gather([&] {
      const SourceData source = read_prepared(prepared, dataset.name);
      report.where = prepared;
      if (!files) check_counts(dataset, source, report);
    });
  if (!report.present)
    report.problems.push_back(fmt::format("{}: not found in {} ({})", dataset.name,
                                          options.folder.empty() ? root.string() : options.folder,
                                          dataset.how_to_get()));
  return report;
}

}  // namespace remcaps
