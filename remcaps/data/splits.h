// Which images train, which validate, which test.
#pragma once

#include "remcaps/data/descriptor.h"

namespace remcaps {

/// Splits a data set by its own rule (docs/data.md), with options.validation, .protocol and the
/// limits applied. The training set is shuffled as numpy does with seed 0; its first images
/// validate.
DataSplits make_splits(SourceData source, const DatasetOptions& options);

}  // namespace remcaps
