#include "remcaps/kernels/convolution/sparse_convolution.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "remcaps/base/error.h"
#include "remcaps/base/parallel.h"
#include "remcaps/kernels/simd/buffer.h"

namespace remcaps::kernels::cpu {
namespace {

using simd::kSparseMargin;
using simd::SparseLayout;
using simd::SparseRows;

// Images that a thread takes together: the weights of a block, read from memory for the first
// image, are still in the second-level cache for the others.
constexpr int64_t kImagesTogether = 4;
// Parts that the channels are cut into, whatever the number of threads. Each block is laid out
// once, by the thread that takes its part.
constexpr int64_t kParts = 4;

// The convolution of one image in pieces.
class SparseProblem {
 public:
  SparseProblem(const ConvolutionShape& shape, const MapStrides& strides, const float* map,
                const SparseWeights& weights, const std::vector<uint32_t>& starts,
                const float* bias, bool relu, float* out)
      : layout_(shape, strides),
        map_(map),
        weights_(weights),
        starts_(starts),
        bias_(bias),
        relu_(relu),
        out_(out),
        blocks_(pieces_of(shape.channels, SparseWeights::kBlock)),
        part_(sparse_part_channels(shape.channels) / SparseWeights::kBlock),
        row_(layout_.row_floats()),
        split_floats_(shape.stride_x * shape.height * layout_.split_width + kSparseMargin) {
    check(block_floats() <= std::numeric_limits<int32_t>::max(),
          "sparse convolution: a map of {}x{} is too large", shape.height, shape.width);
    check(starts.size() == weights.values().size(), "sparse convolution: {} starts for {} weights",
          starts.size(), weights.values().size());
  }

  int64_t blocks() const { return blocks_; }
  int64_t parts() const { return pieces_of(blocks_, part_); }
  int64_t first_block(int64_t part) const { return part * part_; }
  int64_t last_block(int64_t part) const { return std::min(blocks_, (part + 1) * part_); }
  /// Room for the sums of so many filters, and for laying out a block.
  int64_t sums_floats(int64_t filters) const { return filters * row_; }
  int64_t scratch_floats() const { return block_floats() + split_floats_; }

  /// The sums of some filters; add() sets them in a part's first block. The first part's contain
  /// the bias.
  SparseRows rows(int64_t part, int64_t begin, int64_t end, float* sums) const {
    return {.filters = end - begin,
            .weights = weights_.values().data(),
            .starts = starts_.data(),
            .begins = weights_.begins().data() + begin,
            .group_step = layout_.group_rows * layout_.pitch,
            .sums = sums,
            .row = row_,
            .bias = part == 0 && bias_ != nullptr ? bias_ + begin : nullptr};
  }
  void lay_out(int64_t image, int64_t block, float* scratch) const {
    const int64_t begin = block * SparseWeights::kBlock;
    simd::lay_out_channels(layout_,
                           map_ + image * layout_.strides.image + begin * layout_.strides.channel,
                           std::min(layout_.shape.channels - begin, SparseWeights::kBlock),
                           scratch + block_floats(), scratch);
  }
  void add(SparseRows rows, int64_t block, const float* scratch) const {
    rows.begins += block * weights_.filters();
    rows.map = scratch;
    rows.fresh = block % part_ == 0;
    simd::add_sparse_rows(rows);
  }
  void finish(int64_t image, int64_t begin, int64_t end, const float* sums) const {
    simd::copy_sums(
        layout_, end - begin, sums, row_, relu_,
        out_ + (image * weights_.filters() + begin) * layout_.out_height * layout_.out_width);
  }

 private:
  // With the margin that a vector reads and writes beyond the last row.
  int64_t block_floats() const {
    return SparseWeights::kBlock * layout_.channel_floats() + kSparseMargin;
  }

  const SparseLayout layout_;
  const float* map_;
  const SparseWeights& weights_;
  const std::vector<uint32_t>& starts_;
  const float* bias_;
  bool relu_;
  float* out_;
  int64_t blocks_, part_;  ///< blocks, and how many a part has
  int64_t row_;            ///< floats of a filter's sums
  int64_t split_floats_;
};

// Every thread takes some images.
void share_images(const SparseProblem& problem, int64_t filters, int64_t batch, int64_t group) {
  TaskQueue groups(pieces_of(batch, group));
  const int64_t floats = problem.sums_floats(filters);
  on_every_thread([&] {
    const Buffer scratch(problem.scratch_floats()), sums(group * floats);
    const Buffer part_sums(problem.parts() > 1 ? group * floats : 0);
    std::vector<SparseRows> rows(static_cast<size_t>(group));
    while (const auto taken = groups.next()) {
      const int64_t first = *taken * group, count = std::min(group, batch - first);
      for (int64_t part = 0; part < problem.parts(); ++part) {
        float* to = part == 0 ? sums.get() : part_sums.get();
        for (int64_t i = 0; i < count; ++i)
          rows[i] = problem.rows(part, 0, filters, to + i * floats);
        for (int64_t block = problem.first_block(part); block < problem.last_block(part); ++block)
          for (int64_t i = 0; i < count; ++i) {
            problem.lay_out(first + i, block, scratch.get());
            problem.add(rows[i], block, scratch.get());
          }
        if (part > 0) simd::add_sums(to, count * floats, sums.get());
      }
      for (int64_t i = 0; i < count; ++i)
        problem.finish(first + i, 0, filters, sums.get() + i * floats);
    }
  });
}

// All threads work on one image: each on parts of the channels, and on some of the filters if there
// are more threads than parts. A map that was laid out for several filters' shares is laid out by
// each of them, which is faster than to read what another core has written.
void share_image(const SparseProblem& problem, int64_t filters, int64_t image) {
  const int64_t parts = problem.parts();
  const int64_t shares = pieces_of(std::max<int64_t>(thread_count(), parts), parts);
  const int64_t share = std::max<int64_t>(8, pieces_of(filters, shares));
  const int64_t floats = problem.sums_floats(filters);
  const Buffer sums(parts * floats);
  TaskQueue tasks(parts * pieces_of(filters, share));
  on_every_thread([&] {
    const Buffer scratch(problem.scratch_floats());
    while (const auto task = tasks.next()) {
      const int64_t part = *task % parts, begin = *task / parts * share;
      const int64_t end = std::min(filters, begin + share);
      float* to = sums.get() + part * floats + problem.sums_floats(begin);
      const SparseRows rows = problem.rows(part, begin, end, to);
      for (int64_t block = problem.first_block(part); block < problem.last_block(part); ++block) {
        problem.lay_out(image, block, scratch.get());
        problem.add(rows, block, scratch.get());
      }
      if (parts == 1) problem.finish(image, begin, end, to);
    }
  });
  if (parts == 1) return;
  for (int64_t part = 1; part < parts; ++part)
    simd::add_sums(sums.get() + part * floats, floats, sums.get());
  problem.finish(image, 0, filters, sums.get());
}

}  // namespace

SparseWeights::SparseWeights(const ConvolutionShape& shape, std::span<const uint32_t> places,
                             std::span<const float> values)
    : filters_(shape.filters),
      channels_(shape.channels),
      kernel_height_(shape.kernel_height),
      kernel_width_(shape.kernel_width),
      left_(values.size()) {
  const int64_t taps = shape.taps(), filter_floats = channels_ * taps, block_floats = kBlock * taps;
  check(taps <= kMostTaps, "sparse weights: windows of {}x{}; expected at most {} places",
        kernel_height_, kernel_width_, kMostTaps);
  const auto run_of = [&](int64_t place) {  // [blocks, filters]
    return place % filter_floats / block_floats * filters_ + place / filter_floats;
  };
  begins_.resize(static_cast<size_t>(pieces_of(channels_, kBlock) * filters_ + 1));
  for (const uint32_t place : places) ++begins_[static_cast<size_t>(run_of(place) + 1)];
  for (int64_t& count : begins_) count = pieces_of(count, kTogether) * kTogether;
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  values_.resize(static_cast<size_t>(begins_.back()));
  places_.resize(values_.size());
  std::vector<int64_t> next = begins_;
  for (size_t n = 0; n < places.size(); ++n) {
    const auto to = static_cast<size_t>(next[static_cast<size_t>(run_of(places[n]))]++);
    values_[to] = values[n];
    places_[to] = static_cast<uint16_t>(places[n] % filter_floats % block_floats);
  }
  // The zeros read the same pixels as the weight before them.
  for (size_t run = 0; run + 1 < begins_.size(); ++run)
    for (int64_t n = next[run]; n < begins_[run + 1]; ++n)
      places_[static_cast<size_t>(n)] = places_[static_cast<size_t>(n - 1)];
}

struct SparseWeights::Nonzeros {
  Nonzeros(const float* weight, int64_t count) {
    for (int64_t place = 0; place < count; ++place) {
      if (weight[place] == 0) continue;
      places.push_back(static_cast<uint32_t>(place));
      values.push_back(weight[place]);
    }
  }
  std::vector<uint32_t> places;
  std::vector<float> values;
};

SparseWeights::SparseWeights(const ConvolutionShape& shape, const Nonzeros& left)
    : SparseWeights(shape, left.places, left.values) {}

SparseWeights::SparseWeights(const ConvolutionShape& shape, const float* weight)
    : SparseWeights(shape, Nonzeros(weight, shape.filters * shape.channels * shape.taps())) {}

double SparseWeights::density() const {
  return static_cast<double>(left_) /
         static_cast<double>(filters_ * channels_ * kernel_height_ * kernel_width_);
}

int64_t sparse_part_channels(int64_t channels) {
  return pieces_of(pieces_of(channels, SparseWeights::kBlock), kParts) * SparseWeights::kBlock;
}

std::vector<uint32_t> sparse_starts(const ConvolutionShape& shape, const SparseWeights& weights) {
  const SparseLayout layout(shape, {});
  std::vector<uint32_t> of_place;
  for (int64_t channel = 0; channel < SparseWeights::kBlock; ++channel)
    for (int64_t y = 0; y < shape.kernel_height; ++y)
      for (int64_t x = 0; x < shape.kernel_width; ++x)
        of_place.push_back(
            static_cast<uint32_t>(channel * layout.channel_floats() + layout.start(y, x)));
  std::vector<uint32_t> starts;
  starts.reserve(weights.places().size());
  for (const uint16_t place : weights.places()) starts.push_back(of_place[place]);
  return starts;
}

void sparse_convolution(const ConvolutionShape& shape, const MapStrides& strides, const float* map,
                        const SparseWeights& weights, const std::vector<uint32_t>& starts,
                        const float* bias, bool relu, float* out) {
  const SparseProblem problem(shape, strides, map, weights, starts, bias, relu, out);
  const int64_t batch = shape.batch, threads = thread_count();
  if (batch >= threads)
    return share_images(problem, weights.filters(), batch,
                        std::min(kImagesTogether, batch / threads));
  for (int64_t image = 0; image < batch; ++image) share_image(problem, weights.filters(), image);
}

}  // namespace remcaps::kernels::cpu
