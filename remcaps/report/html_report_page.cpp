#include "remcaps/report/html_report_page.h"

#include <zlib.h>

#include <new>

#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/base/text.h"

namespace remcaps {

namespace {

constexpr std::string_view kMarker = "<!--remcaps:data-->";

// JSON may hold "</script>" in a class or folder name; as \u003c it is the same text to a reader.
std::string without_tags(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (const char character : json) {
    if (character == '<')
      text += "\\u003c";
    else
      text += character;
  }
  return text;
}

}  // namespace

std::string_view bytes_of(const torch::Tensor& contiguous) {
  check(contiguous.is_contiguous() && contiguous.scalar_type() == torch::kUInt8,
        "a page holds contiguous bytes only");
  return {reinterpret_cast<const char*>(contiguous.data_ptr<uint8_t>()),
          static_cast<size_t>(contiguous.numel())};
}

std::string encode_bytes(std::string_view bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string encoded(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(encoded.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes.data()),
                               static_cast<uLong>(bytes.size()), Z_BEST_COMPRESSION);
  if (status == Z_MEM_ERROR) throw std::bad_alloc();
  check(status == Z_OK, "zlib could not compress {} bytes (status {})", bytes.size(), status);
  encoded.resize(size);
  return base64(encoded);
}

nlohmann::json PageBlobs::add(std::string encoded, const std::string& type,
                              std::vector<int64_t> shape) {
  texts_.push_back(std::move(encoded));
  return {{"blob", texts_.size() - 1}, {"type", type}, {"shape", std::move(shape)}};
}

nlohmann::json PageBlobs::add(const torch::Tensor& bytes) {
  return add(encode_bytes(bytes_of(bytes)), "uint8", bytes.sizes().vec());
}

std::string html_page(std::string_view page_template, const nlohmann::json& data,
                      const PageBlobs& blobs) {
  const size_t marker = page_template.find(kMarker);
  check(marker != std::string_view::npos, "the page's template has no place for data");

  // Names come from files and folders, which need not be UTF-8.
  const std::string json = json_text(data);
  std::string text(page_template.substr(0, marker));
  text +=
      R"(<script type="application/json" id="report-data">)" + without_tags(json) + "</script>\n";
  for (size_t id = 0; id < blobs.texts().size(); ++id)
    text += fmt::format(R"(<script type="application/octet-stream" id="blob-{}">{}</script>)"
                        "\n",
                        id, blobs.texts()[id]);
  text += page_template.substr(marker + kMarker.size());
  return text;
}

}  // namespace remcaps
