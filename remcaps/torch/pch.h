// Precompiled for every target: the torch headers nearly every file needs, and the standard
// library. A source file still includes what it uses; this only makes that free. Templates that a
// precompiled header leaves to be instantiated cost seconds in EVERY file: torch's layers (conv.h,
// linear.h, ...) stay out, for the few files that use them to include.
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
