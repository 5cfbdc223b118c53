// Which images train, which validate, which test.
#pragma once

#include "remcaps/data/dataset.h"
#include "remcaps/data/readers.h"

namespace remcaps {

/// Divides a data set by its own rule (docs/data.md), with options.validation, .protocol and the
/// limits applied. The training set is shuffled as numpy's seed 0 does, its first images validate.
DataSplits make_splits(SourceData source, const DatasetOptions& options);

/// The number of images that validate by the data set's own rule, out of `n` for training.
int64_t default_validation(const std::string& name, int64_t n);

}  // namespace remcaps
