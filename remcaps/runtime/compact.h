// Networks without what pruning has made dead.
#pragma once

#include <map>
#include <string>

#include "remcaps/runtime/graph.h"
#include "remcaps/tensors/compressed.h"

namespace remcaps {

/// A network as data.
struct NetworkData {
  NetworkGraph graph;
  std::map<std::string, FloatTensor> tensors;
};

/// The same network without
/// - what follows from constant channels: their part of a convolution goes into its bias, where the
///   windows have no padding or the constant is 0;
/// - filters whose channel nobody reads, and with them the weights that read it;
/// - types of capsules that cannot vote: their pose is always 0, or all of their matrices are.
/// Lengths, poses and couplings equal those of the original up to rounding, and so do the parse
/// trees: the routing layer has the number `children` and the word `kept` (below), and gives a
/// capsule that was removed what it always had, a coupling of 1/J to each parent.
NetworkData compacted(NetworkData network);

/// The word `kept` of a routing node as indices, "0-35,72-107" with both ends; ascending and below
/// `count`. Error names `source`.
std::vector<int64_t> parse_kept(const std::string& text, int64_t count, const std::string& source);

}  // namespace remcaps
