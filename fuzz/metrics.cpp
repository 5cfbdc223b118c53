// metrics.csv of a run. Any other exception than Error is a finding.
#include "remcaps/runs/metrics.h"

#include <nlohmann/json.hpp>

#include "fuzz/input_file.h"
#include "remcaps/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const remcaps::fuzz::InputFile input(bytes, size);
  try {
    remcaps::read_metrics(input.path());
  } catch (const remcaps::Error&) {
  }
  return 0;
}
