// The main() of every test program: the same process set-up as the program's own.
#include <gtest/gtest.h>

#include "remcaps/base/runtime.h"

int main(int argc, char** argv) {
  remcaps::prepare_process(argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
