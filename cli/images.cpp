#include "cli/images.h"

#include <memory>
#include <set>

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"
#include "remcaps/data/formats/image_file.h"
#include "remcaps/data/formats/image_tree.h"

namespace remcaps::cli {
namespace {

class ImageList {
 public:
  ImageList(const LoadedRun& run, bool invert, std::string data_root, OnUnreadable on_unreadable)
      : run_(run),
        invert_(invert),
        data_root_(std::move(data_root)),
        on_unreadable_(std::move(on_unreadable)) {}

  // A file, a folder, or images of a split: "test:3,7,10..14".
  void add(const std::string& word) {
    const size_t colon = word.find(':');
    std::error_code ignored;
    if (std::filesystem::is_directory(word, ignored))
      check(add_folder(word) > 0, "{}: no PNG or JPEG files in this folder", word);
    else if (colon == std::string::npos || std::filesystem::exists(word, ignored))
      add_file(word);
    else
      add_places(word, word.substr(0, colon), parse_ranges(word.substr(colon + 1)));
  }

  std::vector<ImageInput> take() { return std::move(inputs_); }

 private:
  void add_file(const std::string& path) {
    try {
      read_image_header(path);
    } catch (const Error& error) {
      if (!on_unreadable_) throw;
      return on_unreadable_(path, error.what());
    }
    inputs_.push_back(
        {path, unique(std::filesystem::path(path).stem().string()), std::nullopt,
         [run = &run_, path, invert = invert_] { return run->read_input(path, invert); }});
  }

  // With its sub-folders. Returns the number of files.
  size_t add_folder(const std::filesystem::path& folder) {
    const std::vector<std::filesystem::path> pictures = list_pictures(folder);
    for (const std::filesystem::path& picture : pictures) add_file(picture.string());
    size_t files = pictures.size();
    for (const std::string& name : folder_names(folder)) files += add_folder(folder / name);
    return files;
  }

  void add_places(const std::string& word, const std::string& split,
                  const std::optional<std::vector<NumberRange>>& ranges) {
    if (!ranges) {
      const bool places = word.find_first_not_of("0123456789,.-", split.size() + 1) == word.npos;
      throw UsageError(fmt::format("{}: {} as in test:3,7,10..14", word,
                                   places
                                       ? "expected places and rising ranges of them,"
                                       : "no such file; expected one, or images of the data set"));
    }
    if (invert_)
      throw UsageError(fmt::format("--invert: for files; {} is as the network knows it", word));
    if (!data_) data_ = std::make_shared<const DataSplits>(run_.load_data(data_root_));
    const Dataset& images = data_->split(split);
    const auto read = [run = &run_, data = data_, split](int64_t place) {
      const Dataset one = data->split(split).select(torch::tensor({place}));
      return run->source(one, split).evaluation_batch(0, 1).images;
    };
    for (const NumberRange& range : *ranges) {
      check(range.last < images.size(), "{}: the {} split has images 0 to {}", word, split,
            images.size() - 1);
      for (int64_t place = range.first; place <= range.last; ++place)
        inputs_.push_back(
            {fmt::format("{}:{}", split, place), unique(fmt::format("{}-{}", split, place)),
             data_->class_names.at(static_cast<size_t>(images.labels[place].item<int64_t>())),
             [read, place] { return read(place); }});
    }
    inputs_.back().read();  // Error if the images do not have the size of the network's input
  }

  // Files in different folders may have the same name.
  std::string unique(const std::string& stem) {
    std::string name = stem;
    for (int n = 2; !stems_.insert(name).second; ++n) name = fmt::format("{}-{}", stem, n);
    return name;
  }

  const LoadedRun& run_;
  bool invert_;
  std::string data_root_;
  OnUnreadable on_unreadable_;
  std::shared_ptr<const DataSplits> data_;
  std::set<std::string> stems_;
  std::vector<ImageInput> inputs_;
};

}  // namespace

std::string ImageInput::remark(const std::string& predicted) const {
  return label && *label != predicted ? ", labelled " + *label : "";
}

void ImageOptions::add_to(CLI::App& command) {
  command
      .add_option("images", words,
                  "PNG or JPEG files, folders of them, or images of the data set: test:17, "
                  "test:3,7,10..14")
      ->required();
  command.add_flag("--invert", invert, "Files: light to dark, for dark things on a light ground");
}

std::vector<ImageInput> list_images(const LoadedRun& run, const ImageOptions& options,
                                    const std::string& data_root,
                                    const OnUnreadable& on_unreadable) {
  ImageList images(run, options.invert, data_root, on_unreadable);
  for (const std::string& word : options.words) images.add(word);
  return images.take();
}

}  // namespace remcaps::cli
