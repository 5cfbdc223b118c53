// Files of data sets: idx, CIFAR, NORB, MAT-5 and prepared ones. No input is two of them. Any other
// exception than Error is a finding.
#include "fuzz/input_file.h"
#include "remcaps/base/error.h"
#include "remcaps/data/formats/cifar.h"
#include "remcaps/data/formats/idx.h"
#include "remcaps/data/formats/mat5.h"
#include "remcaps/data/formats/norb.h"
#include "remcaps/data/formats/prepared.h"

namespace {

template <typename Read>
void attempt(const Read& read) {
  try {
    read();
  } catch (const remcaps::Error&) {
  }
}

// Every number is read.
void use(const torch::Tensor& tensor) {
  [[maybe_unused]] volatile double sum = tensor.sum().item<double>();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const remcaps::fuzz::InputFile input(bytes, size);
  const auto path = input.path();
  attempt([&] { use(remcaps::read_idx(path)); });
  attempt([&] { use(remcaps::read_idx_pair(path, path, 10).labels); });
  attempt([&] { use(remcaps::read_cifar_batch(path, 1).images); });
  attempt([&] { use(remcaps::read_norb_matrix(path)); });
  attempt([&] { use(remcaps::read_small_norb(path, path, path).labels); });
  attempt([&] { use(remcaps::read_prepared(path, "mnist").train.images); });
  if (size < 4 || bytes[0] != 'M') return 0;
  attempt([&] { use(remcaps::MatFile(path).array("X")); });
  attempt([&] { use(remcaps::MatFile(path).array("affNISTdata", "image")); });
  return 0;
}
