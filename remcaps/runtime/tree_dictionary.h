// A dictionary of parse trees that is shipped with a network: how many images of a data set share
// one.
#pragma once

#include <memory>
#include <string>

#include "remcaps/runtime/network.h"

namespace remcaps::runtime {

/// Where a parse tree stands in the dictionary of its class.
struct TreePlace {
  int64_t images = 0;        ///< that have this tree; 0: the dictionary does not know it
  int64_t class_images = 0;  ///< of the whole class
  int64_t rank = 0;          ///< 1: no tree of the class is more frequent; 0: not known
  int64_t class_trees = 0;
};

class TreeDictionary {
 public:
  /// Reads what `remcaps entropy --save` wrote. Error if the file is damaged, or if its trees are
  /// not those of this network.
  TreeDictionary(const std::string& path, const Network& network);
  ~TreeDictionary();
  TreeDictionary(TreeDictionary&&) noexcept;
  TreeDictionary& operator=(TreeDictionary&&) noexcept;

  /// `key`: Network::tree_key() at the last routing layer. `class_index`: the class predicted with
  /// quantized couplings.
  TreePlace find(int64_t class_index, const std::string& key) const;

 private:
  struct Trees;
  std::unique_ptr<Trees> trees_;
};

}  // namespace remcaps::runtime
