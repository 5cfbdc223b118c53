// Archives of downloads: tar, zip and gzip. Nothing is kept; any other exception than Error, and a
// member whose path leaves its folder, is a finding.
#include "remcaps/data/formats/archive.h"

#include "fuzz/input_file.h"
#include "remcaps/base/error.h"
#include "remcaps/base/files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  constexpr int64_t kMost = 1 << 20;
  const remcaps::fuzz::InputFile input(bytes, size);
  const auto place = [](const std::string& member) -> std::filesystem::path {
    if (!remcaps::stays_below(member)) std::abort();
    return "/dev/null";
  };
  for (const auto unpack : {remcaps::unpack_tar, remcaps::unpack_zip}) {
    try {
      unpack(input.path(), place, kMost);
    } catch (const remcaps::Error&) {
    }
  }
  try {
    remcaps::gunzip(input.path(), "/dev/null", kMost);
  } catch (const remcaps::Error&) {
  }
  return 0;
}
