#include "remcaps/tensors/safetensors.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/base/names.h"

namespace remcaps {
namespace {

using nlohmann::json;

struct TypeName {
  const char* name;
  torch::ScalarType type;
};
constexpr std::array<TypeName, 10> kTypes = {{{"F64", torch::kFloat64},
                                              {"F32", torch::kFloat32},
                                              {"F16", torch::kFloat16},
                                              {"BF16", torch::kBFloat16},
                                              {"I64", torch::kInt64},
                                              {"I32", torch::kInt32},
                                              {"I16", torch::kInt16},
                                              {"I8", torch::kInt8},
                                              {"U8", torch::kUInt8},
                                              {"BOOL", torch::kBool}}};

constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr const char* kMetadata = "__metadata__";

uint64_t read_length(const char* bytes) {
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(bytes[i]);
  return length;
}

}  // namespace

struct SafetensorsFile::Mapping {
  const char* bytes = nullptr;
  size_t size = 0;

  explicit Mapping(const std::filesystem::path& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    check(fd >= 0, "{}: cannot read: {}", path.string(), std::strerror(errno));
    struct stat status {};
    if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
      size = static_cast<size_t>(status.st_size);
      // Private and writable: a view can be handed to torch, which knows no read-only tensors.
      void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
      if (mapped != MAP_FAILED) bytes = static_cast<const char*>(mapped);
    }
    const int error = errno;
    ::close(fd);
    check(size >= 8, "{}: {} bytes; a safetensors file has at least 8 (file truncated?)",
          path.string(), size);
    check(bytes != nullptr, "{}: cannot map: {}", path.string(), std::strerror(error));
  }
  ~Mapping() {
    if (bytes != nullptr) ::munmap(const_cast<char*>(bytes), size);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), mapping_(std::make_shared<Mapping>(path)) {
  const std::string name = path.string();
  const uint64_t length = read_length(mapping_->bytes);
  check(length >= 2 && length <= kMaxHeader && length <= mapping_->size - 8,
        "{}: header of {} bytes in a file of {} (not a safetensors file, or truncated)", name,
        length, mapping_->size);
  data_begin_ = 8 + length;
  const size_t data_size = mapping_->size - data_begin_;

  json header;
  try {
    header = json::parse(mapping_->bytes + 8, mapping_->bytes + data_begin_);
  } catch (const json::parse_error& error) {
    fail("{}: the header is not JSON (byte {} of the file)", name, 8 + error.byte);
  }
  check(header.is_object(), "{}: the header is not a JSON object", name);
  std::string reading;
  try {
    for (const auto& [key, value] : header.items()) {
      reading = key;
      if (key == kMetadata) {
        metadata_ = value.get<Metadata>();
        continue;
      }
      const auto type_name = value.at("dtype").get<std::string>();
      const auto* type = std::find_if(kTypes.begin(), kTypes.end(),
                                      [&](const TypeName& t) { return type_name == t.name; });
      check(type != kTypes.end(), "{}: tensor {} has the unknown type {}", name, key, type_name);
      Entry entry{type->type, value.at("shape").get<std::vector<int64_t>>(), 0, 0};
      const auto offsets = value.at("data_offsets").get<std::vector<uint64_t>>();
      check(offsets.size() == 2 && offsets[0] <= offsets[1] && offsets[1] <= data_size,
            "{}: tensor {} lies at bytes [{}] of {} (file truncated?)", name, key,
            fmt::join(offsets, ", "), data_size);
      entry.begin = offsets[0];
      entry.end = offsets[1];
      uint64_t bytes = torch::elementSize(entry.type);
      for (const int64_t extent : entry.shape) {
        check(extent >= 0 && (extent == 0 || bytes <= data_size / static_cast<uint64_t>(extent)),
              "{}: tensor {} has the shape [{}], more than the file holds", name, key,
              fmt::join(entry.shape, ", "));
        bytes *= static_cast<uint64_t>(extent);
      }
      check(bytes == entry.end - entry.begin, "{}: tensor {} of shape [{}] needs {} bytes, has {}",
            name, key, fmt::join(entry.shape, ", "), bytes, entry.end - entry.begin);
      entries_.emplace(key, std::move(entry));
    }
  } catch (const json::exception&) {
    fail(
        "{}: broken header: {} is not {}", name, reading,
        reading == kMetadata ? "a text for every key" : "a tensor's dtype, shape and data_offsets");
  }
  check_tiles(data_size);
}

// One tensor after the other, without a hole: each byte belongs to one of them.
void SafetensorsFile::check_tiles(size_t data_size) const {
  std::vector<const std::pair<const std::string, Entry>*> ordered;
  for (const auto& entry : entries_) ordered.push_back(&entry);
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  size_t covered = 0;
  for (const auto* entry : ordered) {
    check(entry->second.begin == covered,
          "{}: tensor {} lies at bytes [{}, {}]; the tensors before it end at {}", path_.string(),
          entry->first, entry->second.begin, entry->second.end, covered);
    covered = entry->second.end;
  }
  check(covered == data_size, "{}: tensors cover {} of {} data bytes", path_.string(), covered,
        data_size);
}

const SafetensorsFile::Entry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  check(found != entries_.end(), "{}: has no tensor {}{}", path_.string(), name,
        suggestion(name, names()));
  return found->second;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

std::vector<int64_t> SafetensorsFile::shape(const std::string& name) const {
  return entry(name).shape;
}

torch::ScalarType SafetensorsFile::type(const std::string& name) const {
  return entry(name).type;
}

torch::Tensor SafetensorsFile::view(const std::string& name) const {
  const Entry& found = entry(name);
  const char* bytes = mapping_->bytes + data_begin_ + found.begin;
  // Torch wants aligned elements; the format does not promise them.
  if (reinterpret_cast<uintptr_t>(bytes) % torch::elementSize(found.type) != 0) return load(name);
  return torch::from_blob(
      const_cast<char*>(bytes), found.shape, [keep = mapping_](void*) {},
      torch::TensorOptions().dtype(found.type));
}

torch::Tensor SafetensorsFile::load(const std::string& name) const {
  const Entry& found = entry(name);
  torch::Tensor tensor = torch::empty(found.shape, torch::TensorOptions().dtype(found.type));
  if (found.end > found.begin)
    std::memcpy(tensor.data_ptr(), mapping_->bytes + data_begin_ + found.begin,
                found.end - found.begin);
  return tensor;
}

TensorMap SafetensorsFile::load_all() const {
  TensorMap tensors;
  for (const auto& [name, entry] : entries_) tensors.emplace(name, load(name));
  return tensors;
}

void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                      const Metadata& metadata) {
  json header = json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::vector<torch::Tensor> ordered;
  // Wide types first, so that every tensor of the file is aligned to its element.
  std::vector<const TensorMap::value_type*> entries;
  for (const auto& entry : tensors) entries.push_back(&entry);
  std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
    return a->second.element_size() > b->second.element_size();
  });
  size_t offset = 0;
  for (const auto* entry : entries) {
    const torch::Tensor tensor = entry->second.detach().to(torch::kCPU).contiguous();
    const auto* type = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& t) {
      return t.type == tensor.scalar_type();
    });
    check(type != kTypes.end(), "{}: tensor {} has a type safetensors does not know", path.string(),
          entry->first);
    const size_t bytes = tensor.nbytes();
    header[entry->first] = {{"dtype", type->name},
                            {"shape", tensor.sizes().vec()},
                            {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
    ordered.push_back(tensor);
  }
  std::string text = json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::array<char, 8> length{};
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);

  write_atomically(path, [&](std::ostream& out) {
    out.write(length.data(), length.size());
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    for (const auto& tensor : ordered)
      out.write(static_cast<const char*>(tensor.data_ptr()),
                static_cast<std::streamsize>(tensor.nbytes()));
  });
}

}  // namespace remcaps
