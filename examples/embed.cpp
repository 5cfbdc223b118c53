// A trained network inside a program of your own: it classifies pictures and says what they were
// assembled from.
//
//   example_embed NETWORK PICTURE...
//
// NETWORK is "zoo:mnist/dr-capsnet-rem", a weights file or a run folder. A PICTURE is a PNG or JPEG
// file of any size.
#include <remcaps/remcaps.h>

#include <cstdio>

int main(int argc, char** argv) try {
  if (argc < 3) throw remcaps::UsageError("usage: example_embed NETWORK PICTURE...");
  const remcaps::Network network = remcaps::Network::load(argv[1]);
  for (int i = 2; i < argc; ++i) {
    const remcaps::Explanation explanation = network.explain(argv[i]);
    const remcaps::Classification& answer = explanation.answer;
    std::printf("%s: %s, length %.3f", argv[i], answer.class_name.c_str(), answer.length);
    if (explanation.tree)
      std::printf(", assembled from %lld capsules",
                  static_cast<long long>(explanation.tree->nodes_in_tree() - 1));
    std::printf("\n");
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "example_embed: %s\n", error.what());
  return 1;
}
