#include "remcaps/tensors/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"

namespace remcaps {
namespace {

using nlohmann::json;

struct Mapping {
  const char* bytes = nullptr;
  size_t size = 0;

  explicit Mapping(const std::filesystem::path& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    check(fd >= 0, "{}: cannot read: {}", path.string(), std::strerror(errno));
    struct stat status {};
    if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
      size = static_cast<size_t>(status.st_size);
      // Private and writable: a view can be given to libtorch, which knows no read-only tensors.
      void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
      if (mapped != MAP_FAILED) bytes = static_cast<const char*>(mapped);
    }
    const int error = errno;
    ::close(fd);
    check(bytes != nullptr || size < 8, "{}: cannot map: {}", path.string(), std::strerror(error));
  }
  ~Mapping() {
    if (bytes != nullptr) ::munmap(const_cast<char*>(bytes), size);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
};

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : SafetensorsFile(path, std::make_shared<Mapping>(path)) {}

template <typename Bytes>
SafetensorsFile::SafetensorsFile(const std::filesystem::path& path,
                                 const std::shared_ptr<Bytes>& mapping)
    : SafetensorsBytes(std::as_bytes(std::span(mapping->bytes, mapping->size)), path.string()),
      path_(path),
      mapping_(mapping) {}

void write_safetensors(std::ostream& out, const TensorViews& tensors, const Metadata& metadata) {
  // Wide types first: every tensor of the file is then aligned to its element.
  std::vector<const TensorViews::value_type*> ordered;
  for (const auto& tensor : tensors) ordered.push_back(&tensor);
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto* a, const auto* b) {
    return element_size(a->second.type) > element_size(b->second.type);
  });
  json header = json::object();
  if (!metadata.empty()) header[kSafetensorsMetadata] = metadata;
  size_t offset = 0;
  for (const auto* entry : ordered) {
    const auto& [name, tensor] = *entry;
    const size_t end = offset + tensor.bytes.size();
    header[name] = {{"dtype", type_name(tensor.type)},
                    {"shape", tensor.shape},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::array<char, 8> length{};
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);

  out.write(length.data(), length.size());
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const auto* entry : ordered) {
    const auto bytes = entry->second.bytes;
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  }
}

void write_safetensors(const std::filesystem::path& path, const TensorViews& tensors,
                       const Metadata& metadata) {
  write_atomically(path, [&](std::ostream& out) { write_safetensors(out, tensors, metadata); });
}

}  // namespace remcaps
