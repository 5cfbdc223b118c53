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
                const SparseWeights& weights, const SparseStarts& starts, const float* bias,
                bool relu, float* out)
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
        sums_are_result_(parts() == 1 && layout_.rows_are_one() &&
                         row_ == layout_.out_height * layout_.out_width),
        split_floats_(shape.stride_x * shape.height * layout_.split_width + kSparseMargin) {
    check(block_floats() <= std::numeric_limits<int32_t>::max(),
          "sparse convolution: a map of {}x{} is too large", shape.height, shape.width);
    const size_t count = std::max(starts.narrow.size(), starts.wide.size());
    check(count == weights.values().size(), "sparse convolution: {} starts for {} weights", count,
          weights.values().size());
  }

  int64_t blocks() const { return blocks_; }
  int64_t parts() const { return pieces_of(blocks_, part_); }
  int64_t first_block(int64_t part) const { return part * part_; }
  int64_t last_block(int64_t part) const { return std::min(blocks_, (part + 1) * part_); }
  /// Room for the sums of all filters, and for laying out a block.
  int64_t sums_floats() const { return weights_.filters() * row_; }
  int64_t scratch_floats() const { return block_floats() + split_floats_; }
  /// Where the sums of an image belong that need no copying; null if they do.
  float* result(int64_t image) const {
    return sums_are_result_ ? out_ + image * sums_floats() : nullptr;
  }

  /// Some filters, all of them or groups of SparseWeights::kSorted, whose sums are among those of
  /// all. add() sets them in a part's first block. The first part's contain the bias.
  SparseRows rows(int64_t part, int64_t begin, int64_t end, float* sums) const {
    return {.runs = end - begin,
            .filters = weights_.run_filters().data() + begin,
            .begins = weights_.begins().data() + begin,
            .weights = weights_.values().data(),
            .narrow_starts = starts_.narrow.empty() ? nullptr : starts_.narrow.data(),
            .wide_starts = starts_.wide.data(),
            .group_step = layout_.group_rows * layout_.pitch,
            .sums = sums,
            .row = row_,
            .bias = part == 0 ? bias_ : nullptr};
  }
  void lay_out(int64_t image, int64_t block, float* scratch) const {
    const int64_t begin = block * SparseWeights::kBlock;
    simd::lay_out_channels(layout_,
                           map_ + image * layout_.strides.image + begin * layout_.strides.channel,
                           std::min(layout_.shape.channels - begin, SparseWeights::kBlock),
                           scratch + block_floats(), scratch);
  }
  void add(SparseRows rows, int64_t block, const float* scratch) const {
    rows.filters += block * weights_.filters();
    rows.begins += block * weights_.filters();
    rows.map = scratch;
    rows.fresh = block % part_ == 0;
    rows.relu = relu_ && sums_are_result_ && block + 1 == blocks_;
    simd::add_sparse_rows(rows);
  }
  /// Adds the sums of all parts to those of the first one, for filters begin to end - 1.
  void add_parts(int64_t begin, int64_t end, float* sums) const {
    for (int64_t part = 1; part < parts(); ++part)
      simd::add_sums(sums + part * sums_floats() + begin * row_, (end - begin) * row_,
                     sums + begin * row_);
  }
  /// Copies the sums of filters begin to end - 1.
  void finish(int64_t image, int64_t begin, int64_t end, const float* sums) const {
    simd::copy_sums(
        layout_, end - begin, sums + begin * row_, row_, relu_,
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
  const SparseStarts& starts_;
  const float* bias_;
  bool relu_;
  float* out_;
  int64_t blocks_, part_;  ///< blocks, and how many a part has
  int64_t row_;            ///< floats of a filter's sums
  bool sums_are_result_;
  int64_t split_floats_;
};

// Every thread takes some images.
void share_images(const SparseProblem& problem, int64_t filters, int64_t batch, int64_t group) {
  TaskQueue groups(pieces_of(batch, group));
  const int64_t floats = problem.sums_floats();
  const bool has_result = problem.result(0) != nullptr;
  on_every_thread([&] {
    const Buffer scratch(problem.scratch_floats()), sums(has_result ? 0 : group * floats);
    const Buffer part_sums(problem.parts() > 1 ? group * floats : 0);
    std::vector<SparseRows> rows(static_cast<size_t>(group));
    while (const auto taken = groups.next()) {
      const int64_t first = *taken * group, count = std::min(group, batch - first);
      for (int64_t part = 0; part < problem.parts(); ++part) {
        float* to = has_result ? problem.result(first) : part == 0 ? sums.get() : part_sums.get();
        for (int64_t i = 0; i < count; ++i)
          rows[i] = problem.rows(part, 0, filters, to + i * floats);
        for (int64_t block = problem.first_block(part); block < problem.last_block(part); ++block)
          for (int64_t i = 0; i < count; ++i) {
            problem.lay_out(first + i, block, scratch.get());
            problem.add(rows[i], block, scratch.get());
          }
        if (part > 0) simd::add_sums(to, count * floats, sums.get());
      }
      for (int64_t i = 0; i < count && !has_result; ++i)
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
  const int64_t share =
      pieces_of(pieces_of(filters, shares), SparseWeights::kSorted) * SparseWeights::kSorted;
  const int64_t floats = problem.sums_floats();
  const int threads = thread_count();
  float* const result = problem.result(image);
  const Buffer sums(result == nullptr ? parts * floats : 0);
  StageQueue summing(parts * pieces_of(filters, share), threads);
  StageQueue finishing(result == nullptr ? pieces_of(filters, SparseWeights::kSorted) : 0, threads);
  run_on_threads(threads, [&](int thread) {
    const Buffer scratch(problem.scratch_floats());
    summing.take(thread, [&](int64_t task) {
      const int64_t part = task % parts, begin = task / parts * share;
      const int64_t end = std::min(filters, begin + share);
      float* to = result == nullptr ? sums.get() + part * floats : result;
      const SparseRows rows = problem.rows(part, begin, end, to);
      for (int64_t block = problem.first_block(part); block < problem.last_block(part); ++block) {
        problem.lay_out(image, block, scratch.get());
        problem.add(rows, block, scratch.get());
      }
    });
    summing.wait();
    finishing.take(thread, [&](int64_t task) {
      const int64_t begin = task * SparseWeights::kSorted;
      const int64_t end = std::min(filters, begin + SparseWeights::kSorted);
      problem.add_parts(begin, end, sums.get());
      problem.finish(image, begin, end, sums.get());
    });
  });
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
  // What a filter has in each block, [blocks, filters], and then the same in the order of the runs.
  const auto slot_of = [&](int64_t place) {
    return static_cast<size_t>(place % filter_floats / block_floats * filters_ +
                               place / filter_floats);
  };
  const int64_t blocks = pieces_of(channels_, kBlock);
  std::vector<int64_t> counts(static_cast<size_t>(blocks * filters_));
  for (const uint32_t place : places) ++counts[slot_of(place)];
  for (int64_t& count : counts) count = pieces_of(count, kTogether) * kTogether;
  std::vector<size_t> run_of(counts.size());
  begins_.resize(counts.size() + 1);
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t* of = counts.data() + block * filters_;
    std::vector<uint32_t> order(static_cast<size_t>(filters_));
    std::iota(order.begin(), order.end(), 0U);
    for (int64_t first = 0; first < filters_; first += kSorted)
      std::stable_sort(order.begin() + first, order.begin() + std::min(filters_, first + kSorted),
                       [of](uint32_t a, uint32_t b) { return of[a] > of[b]; });
    for (const uint32_t filter : order) {
      run_of[static_cast<size_t>(block * filters_ + filter)] = run_filters_.size();
      run_filters_.push_back(filter);
      begins_[run_filters_.size()] = of[filter];
    }
  }
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  values_.resize(static_cast<size_t>(begins_.back()));
  places_.resize(values_.size());
  std::vector<int64_t> next = begins_;
  for (size_t n = 0; n < places.size(); ++n) {
    const auto to = static_cast<size_t>(next[run_of[slot_of(places[n])]]++);
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

SparseStarts sparse_starts(const ConvolutionShape& shape, const SparseWeights& weights) {
  const SparseLayout layout(shape, {});
  std::vector<uint32_t> of_place;
  for (int64_t channel = 0; channel < std::min(shape.channels, SparseWeights::kBlock); ++channel)
    for (int64_t y = 0; y < shape.kernel_height; ++y)
      for (int64_t x = 0; x < shape.kernel_width; ++x)
        of_place.push_back(
            static_cast<uint32_t>(channel * layout.channel_floats() + layout.start(y, x)));
  const auto take = [&](auto& starts) {
    starts.reserve(weights.places().size());
    for (const uint16_t place : weights.places())
      starts.push_back(
          static_cast<typename std::decay_t<decltype(starts)>::value_type>(of_place[place]));
  };
  SparseStarts starts;
  if (*std::max_element(of_place.begin(), of_place.end()) <= std::numeric_limits<uint16_t>::max() &&
      simd::sparse_lanes() >= simd::kNarrowLanes)
    take(starts.narrow);
  else
    take(starts.wide);
  return starts;
}

void sparse_convolution(const ConvolutionShape& shape, const MapStrides& strides, const float* map,
                        const SparseWeights& weights, const SparseStarts& starts, const float* bias,
                        bool relu, float* out) {
  const SparseProblem problem(shape, strides, map, weights, starts, bias, relu, out);
  const int64_t batch = shape.batch, threads = thread_count();
  if (batch >= threads)
    return share_images(problem, weights.filters(), batch,
                        std::min(kImagesTogether, batch / threads));
  for (int64_t image = 0; image < batch; ++image) share_image(problem, weights.filters(), image);
}

}  // namespace remcaps::kernels::cpu
