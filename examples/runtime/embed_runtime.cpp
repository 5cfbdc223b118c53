// Classifies a grey picture with an exported network. Needs the runtime alone, without libtorch:
//   embed_runtime small.safetensors picture.pgm
#include <remcaps/runtime/network.h>

#include <cstdint>
#include <fstream>
#include <iostream>
#include <vector>

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::cerr << "usage: embed_runtime NETWORK PICTURE.pgm\n";
    return 2;
  }
  const remcaps::runtime::Network network(argv[1]);

  std::ifstream file(argv[2], std::ios::binary);
  std::string format;
  int64_t width = 0, height = 0, white = 0;
  file >> format >> width >> height >> white;
  file.get();  // the line break before the pixels
  if (format != "P5" || white != 255 || width < 1 || height < 1 || width > 4096 || height > 4096) {
    std::cerr << argv[2] << ": not a binary PGM picture\n";
    return 1;
  }
  std::vector<uint8_t> pixels(static_cast<size_t>(width * height));  // [H, W, channels]
  file.read(reinterpret_cast<char*>(pixels.data()), static_cast<std::streamsize>(pixels.size()));

  const auto image = network.prepare({pixels.data(), height, width, /*channels=*/1});
  const auto answer = network.run(image);
  const int64_t predicted = answer.predicted(0);
  std::cout << "predicted " << network.graph().classes[static_cast<size_t>(predicted)] << "\n";
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
