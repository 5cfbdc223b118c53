// Checks that a data set is complete and correct.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "remcaps/data/dataset.h"

namespace remcaps {

struct VerifyReport {
  std::string name;
  bool present = false;                                      ///< anything of it was found
  std::filesystem::path where;                               ///< folder or prepared file
  std::vector<int64_t> shape;                                ///< [C, H, W]
  int64_t train = 0, validation = 0, test = 0, classes = 0;  ///< images as published, before splits
  std::vector<std::string> problems;  ///< one line each: file, found, expected
  std::vector<std::string> notes;     ///< worth knowing, but not wrong

  bool fine() const { return present && problems.empty(); }
};

/// Checks a data set's files: presence, sizes, counts, checksums, label ranges, every picture; and
/// the prepared file if there is one. Problems are gathered, not thrown.
VerifyReport verify_dataset(const DatasetOptions& options, const std::filesystem::path& data_root);

}  // namespace remcaps
