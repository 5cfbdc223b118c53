// From a data set's files, wherever they lie, to images in memory as its authors divided them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "remcaps/data/catalog.h"
#include "remcaps/data/dataset.h"

namespace remcaps {

/// A data set as published, before it is split.
struct SourceData {
  std::string name;
  std::vector<std::string> class_names;
  Dataset train, validation, test;             ///< validation and test may be empty
  std::map<std::string, std::string> missing;  ///< see DataSplits::missing
  std::filesystem::path where;                 ///< folder or prepared file it was read from
};

/// Reads a data set: a prepared file where there is one (of the wanted image size), else the
/// authors' files.
SourceData read_source(const DatasetOptions& options, const std::filesystem::path& data_root);

/// Reads the authors' files only.
SourceData read_files(const DatasetOptions& options, const std::filesystem::path& data_root);

/// Every folder in which a data set's files may lie, in order of preference.
std::vector<std::filesystem::path> candidate_folders(const CatalogEntry& entry,
                                                     const std::string& folder,
                                                     const std::filesystem::path& data_root);

/// The folder in which the data set's files lie; empty where there is none.
std::filesystem::path find_files(const CatalogEntry& entry, const std::string& folder,
                                 const std::filesystem::path& data_root);

}  // namespace remcaps
