// One network that many threads use at once, through the C API: the answers are those of one
// thread, bit for bit, and memory does not grow.
//   shared_network FILE THREADS CALLS
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "remcaps/c/remcaps.h"

namespace {

constexpr int64_t kImages = 16;

// What a thread needs for its calls.
struct Place {
  std::vector<float> lengths;
  std::vector<uint8_t> key;
};

class Shared {
 public:
  explicit Shared(const char* path) : network_(remcaps_open(path)) {
    if (network_ == nullptr) stop(remcaps_error());
    remcaps_describe(network_, &description_);
    if (description_.routing_layers == 0) stop("no routing layer");
    remcaps_describe_layer(network_, 0, &layer_);
    image_size_ =
        static_cast<size_t>(description_.channels * description_.height * description_.width);
    uint32_t state = 1;
    images_.resize(kImages * image_size_);
    for (float& value : images_) {
      state = state * 1664525 + 1013904223;
      value = static_cast<float>(state >> 8) / (1 << 24);
    }
    remcaps_set_threads(network_, 1);
    for (int64_t image = 0; image < kImages; ++image) {
      expected_.push_back(place());
      answer(image, expected_.back());
    }
    remcaps_set_threads(network_, 2);
  }
  ~Shared() { remcaps_close(network_); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  Place place() const {
    return {std::vector<float>(static_cast<size_t>(description_.classes)),
            std::vector<uint8_t>(static_cast<size_t>(layer_.key_length))};
  }

  // `count` calls on `threads` threads.
  void call(int threads, int64_t count) {
    std::atomic<int64_t> next = 0;
    std::vector<std::thread> callers;
    for (int i = 0; i < threads; ++i)
      callers.emplace_back([&] {
        Place own = place();
        for (int64_t at = next++; at < count; at = next++) {
          const int64_t image = at % kImages;
          answer(image, own);
          const Place& right = expected_[static_cast<size_t>(image)];
          if (std::memcmp(own.lengths.data(), right.lengths.data(),
                          own.lengths.size() * sizeof(float)) != 0 ||
              own.key != right.key)
            stop("another answer than that of one thread");
        }
      });
    for (std::thread& caller : callers) caller.join();
  }

  [[noreturn]] static void stop(const char* why) {
    std::fprintf(stderr, "shared_network: %s\n", why);
    std::_Exit(1);
  }

 private:
  void answer(int64_t image, Place& to) const {
    const float* input = images_.data() + static_cast<size_t>(image) * image_size_;
    if (remcaps_classify_floats(network_, input, 1, to.lengths.data(), nullptr) != 0 ||
        (layer_.key_length > 0 &&
         remcaps_tree_key(network_, input, 0, to.key.data(), nullptr) != 0))
      stop(remcaps_error());
  }

  remcaps_network* network_;
  remcaps_description description_{};
  remcaps_layer layer_{};
  size_t image_size_ = 0;
  std::vector<float> images_;
  std::vector<Place> expected_;
};

int64_t resident_bytes() {
  long total = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld %ld", &total, &resident) != 2)
    Shared::stop("/proc/self/statm cannot be read");
  std::fclose(file);
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc == 4 ? std::atoi(argv[2]) : 0;
  const int64_t calls = argc == 4 ? std::atoll(argv[3]) : 0;
  if (threads <= 0 || calls < 10) Shared::stop("usage: shared_network FILE THREADS CALLS");
  Shared network(argv[1]);
  network.call(threads, calls / 10);  // every thread has its memory by then
  const int64_t before = resident_bytes();
  for (int part = 1; part < 10; ++part) network.call(threads, calls / 10);
  const int64_t after = resident_bytes();
  std::printf(
      "%lld calls from %d threads; resident %.2f MB after a tenth of them, %.2f at the end\n",
      static_cast<long long>(calls / 10 * 10), threads, static_cast<double>(before) / 1e6,
      static_cast<double>(after) / 1e6);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they keep notes
  if (after > before + std::max<int64_t>(before / 100, 1 << 20)) Shared::stop("memory grows");
#endif
  return 0;
}
