// PNG and JPEG pictures. Any other exception than Error is a finding.
#include "fuzz/input_file.h"
#include "remcaps/base/error.h"
#include "remcaps/data/formats/picture_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const remcaps::fuzz::InputFile input(bytes, size);
  try {
    const auto picture = remcaps::read_picture(input.path());
    const auto& header = picture.header;
    const int64_t expected = header.height * header.width * header.channels;
    if (static_cast<int64_t>(picture.pixels.size()) != expected) std::abort();
  } catch (const remcaps::Error&) {
  }
  return 0;
}
