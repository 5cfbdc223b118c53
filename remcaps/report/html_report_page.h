// The pages of the program: a template bundled from web/, JSON, and encoded bytes.
#pragma once

#include <torch/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace remcaps {

/// Files of web/dist/ that are embedded in the program: report.html, draw.html and runtime.wasm.
std::string_view html_report_template();
std::string_view draw_page_template();
std::string_view runtime_module();

/// Compressed with zlib and written in base64, as the page reads it.
std::string encode_bytes(std::string_view bytes);

/// Bytes the page holds besides its JSON.
class PageBlobs {
 public:
  /// Adds a text made by encode_bytes(); `type` is "uint8" or "uint16". Returns the
  /// reference to it for the JSON.
  nlohmann::json add(std::string encoded, const std::string& type, std::vector<int64_t> shape);
  /// A uint8 tensor on the CPU, its shape as it is.
  nlohmann::json add(const torch::Tensor& bytes);

  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
};

/// The whole file. No name in `data` can end the element that holds the JSON.
std::string html_page(std::string_view page_template, const nlohmann::json& data,
                      const PageBlobs& blobs);

/// The bytes of a uint8 tensor on the CPU.
std::string_view bytes_of(const torch::Tensor& contiguous);

}  // namespace remcaps
