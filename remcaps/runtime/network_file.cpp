// Apart from network.cpp, which is also compiled for places without a file system (web/runtime).
#include "remcaps/runtime/network.h"
#include "remcaps/tensors/safetensors.h"

namespace remcaps::runtime {

Network::Network(const std::string& path) : Network(SafetensorsFile(path)) {}

}  // namespace remcaps::runtime
