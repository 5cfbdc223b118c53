// Finds a data set's files and reads them into memory, divided as its authors divide them.
#pragma once

#include <filesystem>
#include <string>

#include "remcaps/data/descriptor.h"

namespace remcaps {

/// Reads a data set: a prepared file of the wanted image size if there is one, else the authors'
/// files.
SourceData read_source(const DatasetOptions& options, const std::filesystem::path& data_root);

/// Reads the authors' files only.
SourceData read_files(const DatasetOptions& options, const std::filesystem::path& data_root);

/// The folder that holds the data set's files: `folder` or a folder inside it or, if `folder` is
/// empty, one of the data set's homes. Empty if there is none. Error if `folder` does not exist.
std::filesystem::path find_files(const DatasetDescriptor& dataset, const std::string& folder,
                                 const std::filesystem::path& data_root);

/// The folder of the data set that this one is based on: in `folder` if it is there, else in one of
/// its homes. Empty if it is not found, or if this one is based on none.
std::filesystem::path find_base_files(const DatasetDescriptor& dataset, const std::string& folder,
                                      const std::filesystem::path& data_root);

/// The file that write_generated_test() writes, in `folder` or else in the first home; empty if it
/// is not there.
std::filesystem::path find_generated_test(const DatasetDescriptor& dataset,
                                          const std::string& folder,
                                          const std::filesystem::path& data_root);

/// Generates a test set and writes it into the data set's first home. It is read where the official
/// one is missing. Returns the file.
std::filesystem::path write_generated_test(const DatasetDescriptor& dataset,
                                           const std::filesystem::path& data_root, uint64_t seed);

}  // namespace remcaps
