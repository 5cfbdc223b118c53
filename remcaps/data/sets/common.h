// What several data sets share.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "remcaps/data/descriptor.h"

namespace remcaps::sets {

/// "0" to "9".
std::vector<std::string> digit_names();

/// `folder`/`name`, plain or .gz; Error if neither is there.
std::filesystem::path require_file(const std::filesystem::path& folder, const std::string& name);

/// MNIST's and Fashion-MNIST's four files, each a .gz at `base`.
Provider idx_provider(const std::string& label, const std::string& base);

/// Reads "train" or "t10k" of MNIST's and Fashion-MNIST's files.
Dataset read_idx_part(const std::filesystem::path& folder, const std::string& part);

/// Both parts of them.
void read_idx_parts(const FoundFiles& found, SourceData& source);

/// Normalises colour images with ImageNet's mean and standard deviation.
void use_imagenet_normalisation(AugmentOptions& augment);

/// For photographs. Neither the paper nor its code says how they were augmented: as CIFAR-10, with
/// a shift.
AugmentOptions photo_augment();

}  // namespace remcaps::sets
