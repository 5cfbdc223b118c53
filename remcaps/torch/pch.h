// Precompiled for every target: the torch headers that nearly every file needs, and the standard
// library. A source file still includes what it uses; this only makes it faster. The headers of
// torch's layers (conv.h, linear.h, ...) are not here: their templates would cost seconds in EVERY
// file, and few files use them.
#pragma once

#include <torch/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
