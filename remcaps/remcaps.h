/// @file
/// The public API of remcaps: include this header and no other.
///
/// - Network loads a trained network, classifies images and explains its answers.
/// - train() trains a recipe.
/// - StackedCapsNet and CapsNet are the base classes of networks of your own.
/// - register_network(), register_routing() and register_pruner() add your own parts under names
///   that recipes use.
/// - run_program() gives a program of yours all commands of `remcaps`.
///
/// docs/api.md says which parts are stable.
#pragma once

#include "remcaps/base/error.h"
#include "remcaps/capsule/fc_caps.h"
#include "remcaps/capsule/primary_caps.h"
#include "remcaps/capsule/routing/dynamic.h"
#include "remcaps/models/model.h"
#include "remcaps/models/stacked_capsnet.h"
#include "remcaps/network.h"
#include "remcaps/program.h"
#include "remcaps/pruning/lobster.h"
#include "remcaps/pruning/pruner.h"
#include "remcaps/recipe/recipe.h"
#include "remcaps/train.h"

#ifdef REMCAPS_PREFIX  // set by find_package(remcaps)
namespace remcaps {
bool add_resource_prefix(const std::filesystem::path& prefix);
namespace detail {
inline const bool kPrefixIsKnown = add_resource_prefix(REMCAPS_PREFIX);
}
}  // namespace remcaps
#endif
