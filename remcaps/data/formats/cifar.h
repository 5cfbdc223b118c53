// The binary batches of CIFAR-10: records of one label byte and 3 x 32 x 32 pixel bytes.
#pragma once

#include <filesystem>

#include "remcaps/data/dataset.h"

namespace remcaps {

/// Reads one batch file of exactly `records` images.
Dataset read_cifar_batch(const std::filesystem::path& path, int64_t records = 10'000);

/// Several batches as one set, in their order.
Dataset read_cifar_batches(const std::vector<std::filesystem::path>& paths,
                           int64_t records = 10'000);

}  // namespace remcaps
