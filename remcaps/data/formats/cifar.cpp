#include "remcaps/data/formats/cifar.h"

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"
#include "remcaps/data/formats/gz_reader.h"

namespace remcaps {
namespace {

constexpr int64_t kSide = 32, kChannels = 3, kPixels = kChannels * kSide * kSide;

}  // namespace

Dataset read_cifar_batch(const std::filesystem::path& path, int64_t records) {
  GzReader file(path);
  torch::Tensor bytes = torch::empty({records, 1 + kPixels}, torch::kUInt8);
  const auto size = static_cast<size_t>(bytes.numel());
  const size_t got = file.read(bytes.data_ptr(), size);
  check(got == size, "{}: {} bytes; a CIFAR-10 batch has {} (file truncated?)", path.string(),
        with_commas(static_cast<int64_t>(got)), with_commas(bytes.numel()));
  file.expect_end(fmt::format("a CIFAR-10 batch of {} images", with_commas(records)));

  Dataset dataset;
  dataset.labels = bytes.select(1, 0).to(torch::kInt64);
  dataset.images =
      bytes.narrow(1, 1, kPixels).contiguous().view({records, kChannels, kSide, kSide});
  check_labels(path, dataset.labels, 10);
  return dataset;
}

Dataset read_cifar_batches(const std::vector<std::filesystem::path>& paths, int64_t records) {
  std::vector<torch::Tensor> images, labels;
  for (const auto& path : paths) {
    Dataset batch = read_cifar_batch(path, records);
    images.push_back(batch.images);
    labels.push_back(batch.labels);
  }
  Dataset dataset;
  dataset.images = torch::cat(images);
  dataset.labels = torch::cat(labels);
  return dataset;
}

}  // namespace remcaps
