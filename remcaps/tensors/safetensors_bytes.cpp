#include "remcaps/tensors/safetensors_bytes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/base/names.h"

namespace remcaps {
namespace {

using nlohmann::json;

// Less than the format allows (100 MB): room for 80,000 tensors. Reading it may take 20 times as much.
constexpr uint64_t kMaxHeader = 8'000'000;
constexpr size_t kMaxMetadata = 1 << 20;  // parsed again, as JSON and YAML

uint64_t read_length(const char* bytes) {
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(bytes[i]);
  return length;
}

// Looks for what the parser would take: a key that an object has twice, of which it keeps the last
// (its own callback takes quadratic time), and more values or levels than any file of tensors has,
// which would take a lot of memory.
class HeaderCheck : public json::json_sax_t {
 public:
  /// Empty if there is none.
  const std::string& problem() const { return problem_; }

  bool start_object(std::size_t) override {
    open_.emplace_back();
    return descend();
  }
  bool key(std::string& name) override {
    if (!open_.back().insert(name).second)
      problem_ = fmt::format("the key {} is given twice", name);
    return problem_.empty();
  }
  bool end_object() override {
    open_.pop_back();
    return ascend();
  }
  bool start_array(std::size_t) override { return descend(); }
  bool end_array() override { return ascend(); }
  bool null() override { return count(); }
  bool boolean(bool) override { return count(); }
  bool number_integer(json::number_integer_t) override { return count(); }
  bool number_unsigned(json::number_unsigned_t) override { return count(); }
  bool number_float(json::number_float_t, const std::string&) override { return count(); }
  bool string(std::string&) override { return count(); }
  bool binary(json::binary_t&) override { return count(); }
  bool parse_error(std::size_t, const std::string&, const json::exception&) override {
    return false;
  }

 private:
  bool count() {
    constexpr int64_t kMost = 1'000'000;
    if (++values_ > kMost) problem_ = fmt::format("it has more than {} values", kMost);
    return problem_.empty();
  }
  bool descend() {
    constexpr int kDeepest = 8;
    if (++levels_ > kDeepest) problem_ = fmt::format("it has more than {} levels", kDeepest);
    return count();
  }
  bool ascend() {
    --levels_;
    return true;
  }

  std::vector<std::unordered_set<std::string>> open_;  // keys of each object that is open
  int levels_ = 0;
  int64_t values_ = 0;
  std::string problem_;
};

// The header's JSON, which begins at byte 8 of the file.
json parse_header(const char* begin, const char* end, const std::string& file) {
  HeaderCheck header;
  json::sax_parse(begin, end, &header);
  check(header.problem().empty(), "{}: broken header: {}", file, header.problem());
  try {
    return json::parse(begin, end);
  } catch (const json::parse_error& error) {
    fail("{}: the header is not JSON (byte {} of the file)", file, 8 + error.byte);
  } catch (const json::out_of_range&) {
    fail("{}: broken header: a number is too large", file);
  }
}

// One tensor of the header. Throws json::exception if it is not a tensor's description.
TensorView parse_tensor(const json& value, const std::string& name, const std::string& file,
                        std::span<const std::byte> data) {
  const auto type_text = value.at("dtype").get<std::string>();
  const auto type = parse_type(type_text);
  check(type.has_value(), "{}: tensor {} has the unknown type {}", file, name, type_text);
  TensorView tensor{*type, whole_numbers(value.at("shape")), {}};
  const auto offsets = whole_numbers(value.at("data_offsets"));
  check(offsets.size() == 2 && offsets[0] >= 0 && offsets[0] <= offsets[1] &&
            offsets[1] <= static_cast<int64_t>(data.size()),
        "{}: tensor {} lies at bytes [{}] of {} (file truncated?)", file, name,
        fmt::join(offsets, ", "), data.size());
  tensor.bytes =
      data.subspan(static_cast<size_t>(offsets[0]), static_cast<size_t>(offsets[1] - offsets[0]));
  uint64_t bytes = element_size(*type);
  for (const int64_t extent : tensor.shape) {
    check(extent >= 0 && (extent == 0 || bytes <= data.size() / static_cast<uint64_t>(extent)),
          "{}: tensor {} has the shape [{}], more than the file holds", file, name,
          fmt::join(tensor.shape, ", "));
    bytes *= static_cast<uint64_t>(extent);
  }
  check(bytes == tensor.bytes.size(), "{}: tensor {} of shape [{}] needs {} bytes, has {}", file,
        name, fmt::join(tensor.shape, ", "), bytes, tensor.bytes.size());
  return tensor;
}

}  // namespace

SafetensorsBytes::SafetensorsBytes(std::span<const std::byte> bytes, std::string source)
    : source_(std::move(source)) {
  check(bytes.size() >= 8, "{}: {} bytes; a safetensors file has at least 8 (file truncated?)",
        source_, bytes.size());
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  const uint64_t length = read_length(begin);
  check(length >= 2 && length <= kMaxHeader && length <= bytes.size() - 8,
        "{}: header of {} bytes in a file of {} (not a safetensors file, or truncated)", source_,
        length, bytes.size());
  const auto data = bytes.subspan(8 + static_cast<size_t>(length));
  read_header(begin + 8, begin + 8 + length, data);
  check_tiles(data);
}

void SafetensorsBytes::read_header(const char* begin, const char* end,
                                   std::span<const std::byte> data) {
  const std::string& file = source_;
  const json header = parse_header(begin, end, file);
  check(header.is_object(), "{}: the header is not a JSON object", file);
  std::string reading;
  try {
    for (const auto& [key, value] : header.items()) {
      reading = key;
      if (key == kSafetensorsMetadata)
        metadata_ = value.get<Metadata>();
      else
        tensors_.emplace(key, parse_tensor(value, key, file, data));
    }
  } catch (const json::exception&) {
    fail("{}: broken header: {} is not {}", file, reading,
         reading == kSafetensorsMetadata ? "a text for every key"
                                         : "a tensor's dtype, shape and data_offsets");
  }
  size_t bytes = 0;
  for (const auto& [key, text] : metadata_) bytes += key.size() + text.size();
  check(bytes <= kMaxMetadata, "{}: its metadata have {} bytes; expected at most {}", file, bytes,
        kMaxMetadata);
}

// The tensors follow each other without a gap: each byte belongs to exactly one of them.
void SafetensorsBytes::check_tiles(std::span<const std::byte> data) const {
  struct Place {
    size_t begin, end;
    const std::string* name;
  };
  std::vector<Place> places;
  for (const auto& [name, tensor] : tensors_) {
    const auto begin = static_cast<size_t>(tensor.bytes.data() - data.data());
    places.push_back({begin, begin + tensor.bytes.size(), &name});
  }
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  size_t covered = 0;
  for (const Place& place : places) {
    check(place.begin == covered,
          "{}: tensor {} lies at bytes [{}, {}]; the tensors before it end at {}", source_,
          *place.name, place.begin, place.end, covered);
    covered = place.end;
  }
  check(covered == data.size(), "{}: tensors cover {} of {} data bytes", source_, covered,
        data.size());
}

const TensorView& SafetensorsBytes::tensor(const std::string& name) const {
  if (const auto found = tensors_.find(name); found != tensors_.end()) return found->second;
  fail("{}: has no tensor {}{}", source_, name, suggestion(name, names()));
}

std::vector<std::string> SafetensorsBytes::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

}  // namespace remcaps
