// Small files in every format the data sets come in, made by hand.
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "remcaps/base/error.h"

namespace remcaps::testing {

namespace fs = std::filesystem;

/// The message of the Error that `work` throws; fails the test if it throws none.
std::string error_of(const std::function<void()>& work);

/// Random bytes, the same at every call.
torch::Tensor noise(const std::vector<int64_t>& shape);

/// 300,000 bytes, the same at every call.
std::string long_text();
/// The hash of a text, made by the library, in hexadecimal digits.
std::string sha256(const std::string& text);

void write_bytes(const fs::path& path, const std::string& bytes);
std::string gzip(const std::string& bytes);
/// A zlib stream, as MAT files hold.
std::string deflate_zlib(const std::string& bytes);
/// Cuts a file to `size` bytes.
void truncate_file(const fs::path& path, uintmax_t size);
/// Flips the bits of one byte.
void damage_file(const fs::path& path, uintmax_t at);

/// An idx file of bytes.
std::string idx_bytes(const std::vector<uint32_t>& shape, const std::string& data);
/// MNIST's four files with `train` and `test` images of 28 x 28; pixel p of image i is (i + p) %
/// 251, its label i % 10.
void write_mnist(const fs::path& folder, uint32_t train, uint32_t test);

/// A NORB matrix of bytes or 32-bit integers.
std::string norb_bytes(const std::vector<uint32_t>& shape, const std::string& data);
std::string norb_ints(const std::vector<uint32_t>& shape, const std::vector<int32_t>& data);

/// MAT-5 pieces: a numeric array of bytes, a structure of such arrays, a whole file of them.
std::string mat_array(const std::string& name, const std::vector<int32_t>& dims,
                      const std::string& data);
std::string mat_structure(const std::string& name,
                          const std::vector<std::pair<std::string, std::string>>& fields);
std::string mat_file(const std::vector<std::string>& elements, bool compressed);

/// Pictures: uint8 [C, H, W], C = 1 or 3.
void write_png(const fs::path& path, const torch::Tensor& image);
void write_jpeg(const fs::path& path, const torch::Tensor& image, int quality = 95);
/// A picture of one colour.
torch::Tensor plain_image(int64_t channels, int64_t height, int64_t width, int value);

struct Member {
  std::string name, content;
};
std::string tar_bytes(const std::vector<Member>& members);
std::string zip_bytes(const std::vector<Member>& members, bool deflated);

}  // namespace remcaps::testing
