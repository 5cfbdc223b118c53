#include "remcaps/kernels/convolution/bf16_convolution.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "remcaps/base/parallel.h"
#include "remcaps/kernels/simd/buffer.h"

namespace remcaps::kernels::cpu {
namespace {

constexpr int64_t kPanelDepth = 2304;  // up to this depth all rows of a kernel are one panel
constexpr int64_t kTaskBlocks = 6;     // blocks of places that a task takes over the weights

// A buffer of floats used for pairs, which have the same size.
Pair* as_pairs(const Buffer& buffer) {
  return reinterpret_cast<Pair*>(buffer.get());
}

// How the sum over a kernel is cut into panels of whole tile steps. The last step is filled up with
// zeros.
struct Sums {
  explicit Sums(const ConvolutionShape& shape)
      : row_numbers(shape.kernel_width * shape.channels),
        rows(shape.kernel_height * row_numbers <= kPanelDepth ? shape.kernel_height : 1),
        panels(shape.kernel_height / rows),
        steps(pieces_of(rows * row_numbers, kTileDepth)),
        filter_blocks(pieces_of(shape.filters, kBlockSide)) {}

  int64_t row_numbers;  ///< numbers under a row of the kernel, which are neighbours in the map
  int64_t rows;         ///< rows of the kernel in a panel
  int64_t panels, steps, filter_blocks;
};

// The weights as [panels, filter blocks, steps, 2 tiles, 16 pairs, 16 filters]. Missing filters of
// the last block are zeros.
class TileWeights {
 public:
  TileWeights(const ConvolutionShape& shape, const Sums& sums, const TileUnit& unit,
              const float* weight)
      : sums_(sums), pairs_(sums.panels * sums.filter_blocks * sums.steps * kStepPairs) {
    const std::vector<int64_t> offsets = offsets_in_filter(shape);
    parallel_for(0, 2 * sums.filter_blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) fill(shape, unit, weight, offsets, tile);
    });
  }

  const Pair* at(int64_t panel, int64_t filter_block) const {
    return pairs_of(panel, 2 * filter_block, 0);
  }

 private:
  Pair* pairs_of(int64_t panel, int64_t tile, int64_t pair) const {
    const int64_t block = panel * sums_.filter_blocks + tile / 2;
    const int64_t step = block * sums_.steps + pair / kTileSide;
    return as_pairs(pairs_) + ((step * 2 + tile % 2) * kTileSide + pair % kTileSide) * kTileSide;
  }

  // Where in a filter [C, kh, kw] each number of a panel's sum lies; -1 for the filled-up ones.
  std::vector<int64_t> offsets_in_filter(const ConvolutionShape& shape) const {
    std::vector<int64_t> offsets;
    for (int64_t panel = 0; panel < sums_.panels; ++panel) {
      for (int64_t tap = panel * sums_.rows * shape.kernel_width;
           tap < (panel + 1) * sums_.rows * shape.kernel_width; ++tap)
        for (int64_t channel = 0; channel < shape.channels; ++channel)
          offsets.push_back(channel * shape.taps() + tap);
      offsets.resize((panel + 1) * sums_.steps * kTileDepth, -1);
    }
    return offsets;
  }

  // Fills the 16 filters of a tile, all taps of two channels before the next two: they are
  // neighbours in a filter.
  void fill(const ConvolutionShape& shape, const TileUnit& unit, const float* weight,
            const std::vector<int64_t>& offsets, int64_t tile) const {
    const int64_t size = shape.channels * shape.taps(), first = tile * kTileSide;
    const int64_t filters = std::clamp<int64_t>(shape.filters - first, 0, kTileSide);
    const int64_t pairs = sums_.steps * kTileDepth / 2, apart = pieces_of(shape.channels, 2);
    const auto number = [&](int64_t offset) {
      return offset < 0 || filters == 0 ? nullptr : weight + first * size + offset;
    };
    for (int64_t start = 0; start < apart; ++start)
      for (int64_t panel = 0; panel < sums_.panels; ++panel)
        for (int64_t pair = start; pair < pairs; pair += apart) {
          const int64_t* offset = &offsets[2 * (panel * pairs + pair)];
          unit.round_pairs(number(offset[0]), number(offset[1]), size, filters,
                           pairs_of(panel, tile, pair));
        }
  }

  const Sums& sums_;
  Buffer pairs_;
};

// One thread's tiles and panel.
class TileTask {
 public:
  TileTask(const ConvolutionShape& shape, const Sums& sums, const TileUnit& unit, int64_t blocks)
      : shape_(shape),
        sums_(sums),
        unit_(unit),
        panel_(blocks * sums.steps * kStepPairs),
        results_(blocks * sums.filter_blocks * kBlockFloats),
        window_(sums.steps * kTileDepth) {
    unit_.begin();
  }
  ~TileTask() { unit_.end(); }
  TileTask(const TileTask&) = delete;
  TileTask& operator=(const TileTask&) = delete;

  // `blocks` blocks of places that begin at place `first`. The last block may end early.
  void run(const float* map, const TileWeights& weights, int64_t first, int64_t blocks) {
    for (int64_t panel = 0; panel < sums_.panels; ++panel) {
      for (int64_t row = 0; row < blocks * kBlockSide; ++row)
        round_window(map, std::min(first + row, shape_.places() - 1), panel, row);
      for (int64_t filter_block = 0; filter_block < sums_.filter_blocks; ++filter_block)
        for (int64_t block = 0; block < blocks; ++block)
          unit_.multiply(windows(block), weights.at(panel, filter_block), sums_.steps,
                         /*add=*/panel > 0, result(block, filter_block));
    }
  }

  void write(const float* bias, bool relu, int64_t first, int64_t blocks, float* out) const {
    const float floor = relu ? 0 : -std::numeric_limits<float>::infinity();
    const int64_t rows = std::min(blocks * kBlockSide, shape_.places() - first);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t filter_block = 0; filter_block < sums_.filter_blocks; ++filter_block) {
        const float* from = result(row / kBlockSide, filter_block) + row % kBlockSide * kBlockSide;
        float sum[kBlockSide];
        for (int64_t x = 0; x < kBlockSide; ++x)
          sum[x] = std::max(from[x] + bias[filter_block * kBlockSide + x], floor);
        std::copy_n(sum, std::min(kBlockSide, shape_.filters - filter_block * kBlockSide),
                    out + (first + row) * shape_.filters + filter_block * kBlockSide);
      }
  }

 private:
  Pair* windows(int64_t block) const { return as_pairs(panel_) + block * sums_.steps * kStepPairs; }
  float* result(int64_t block, int64_t filter_block) const {
    return results_.get() + (block * sums_.filter_blocks + filter_block) * kBlockFloats;
  }

  // Rounds the part of a window that a panel covers, as one row of the panel.
  void round_window(const float* map, int64_t place, int64_t panel, int64_t row) {
    const int64_t x = place % shape_.out_width(), line = place / shape_.out_width();
    const int64_t y = line % shape_.out_height(), image = line / shape_.out_height();
    const int64_t map_y = image * shape_.height + y * shape_.stride_y + panel * sums_.rows;
    const float* from = map + (map_y * shape_.width + x * shape_.stride_x) * shape_.channels;
    if (sums_.rows > 1 || sums_.row_numbers % kTileDepth != 0) {
      for (int64_t ky = 0; ky < sums_.rows; ++ky)
        std::copy_n(from + ky * shape_.width * shape_.channels, sums_.row_numbers,
                    window_.data() + ky * sums_.row_numbers);
      from = window_.data();
    }
    unit_.round_row(from, sums_.steps, windows(row / kBlockSide) + row % kBlockSide * kTileSide);
  }

  const ConvolutionShape& shape_;
  const Sums& sums_;
  const TileUnit& unit_;
  Buffer panel_;               // [blocks, steps, 32 places, 16 pairs]
  Buffer results_;             // [blocks, filter blocks, 32 places, 32 filters]
  std::vector<float> window_;  // the rows of a window, then zeros
};

}  // namespace

void bf16_convolution(const ConvolutionShape& shape, const TileUnit& unit, const float* map,
                      const float* weight, const float* bias, bool relu, float* out) {
  const Sums sums(shape);
  const TileWeights weights(shape, sums, unit, weight);
  std::vector<float> biases(sums.filter_blocks * kBlockSide);
  if (bias != nullptr) std::copy_n(bias, shape.filters, biases.data());
  const int64_t blocks = pieces_of(shape.places(), kBlockSide);
  const int64_t share = std::clamp<int64_t>(blocks / thread_count(), 1, kTaskBlocks);
  TaskQueue queue(pieces_of(blocks, share));
  on_every_thread([&] {
    TileTask task(shape, sums, unit, share);
    while (const auto next = queue.next()) {
      const int64_t first = *next * share, count = std::min(share, blocks - first);
      task.run(map, weights, first * kBlockSide, count);
      task.write(biases.data(), relu, first * kBlockSide, count, out);
    }
  });
}

}  // namespace remcaps::kernels::cpu
