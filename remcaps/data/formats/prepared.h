// A data set decoded once into one safetensors file, for machines without the decoders.
#pragma once

#include <filesystem>
#include <string>

#include "remcaps/data/descriptor.h"

namespace remcaps {

/// Writes, atomically, every part of a data set as published: tensors "train.images" (uint8
/// [N, C, H, W]), "train.labels" (int64 [N]), "train.attribute.azimuth", ... and the same for
/// validation and test; name and class names are in the metadata. Splits are made when it is
/// loaded.
void write_prepared(const std::filesystem::path& path, const SourceData& source);

/// Images are views of the mapped file. Error if the file is damaged or holds another data set.
SourceData read_prepared(const std::filesystem::path& path, const std::string& name);

/// The same of a file that may lack parts, training images among them.
SourceData read_parts(const std::filesystem::path& path, const std::string& name);

/// folder/prepared.safetensors (or `folder` itself, if that is a file); without a folder
/// DATA/<name>.safetensors or DATA/<name>/prepared.safetensors. Empty if there is none.
std::filesystem::path find_prepared(const std::string& name, const std::string& folder,
                                    const std::filesystem::path& data_root);

/// Where `remcaps data prepare` writes by default.
std::filesystem::path default_prepared(const std::string& name, const std::string& folder,
                                       const std::filesystem::path& data_root);

}  // namespace remcaps
